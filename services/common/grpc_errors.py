"""HeadraceError ↔ gRPC status with details (google.rpc.BadRequest, RetryInfo, ErrorInfo)."""

from __future__ import annotations

from typing import Any, NoReturn, cast

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from protos.common.v1 import common_pb2
from services.common import errors

_DOMAIN = "headrace"


def to_status(error: errors.HeadraceError) -> Any:
    """The gRPC status of an error, with the field, the reason and the retry delay as details."""
    status = status_pb2.Status(code=error.grpc_code, message=error.message)

    def attach(message: Any) -> None:
        packed = any_pb2.Any()
        packed.Pack(message)
        status.details.append(packed)

    if error.field:
        violation = error_details_pb2.BadRequest.FieldViolation(field=error.field, description=error.message)
        attach(error_details_pb2.BadRequest(field_violations=[violation]))
    if error.retry_after_ms is not None:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(error.retry_after_ms)
        attach(error_details_pb2.RetryInfo(retry_delay=delay))
    flags = {"safe_to_retry": str(error.safe_to_retry).lower(), "safe_to_resume": str(error.safe_to_resume).lower()}
    attach(error_details_pb2.ErrorInfo(reason=error.code or error.type_name, domain=_DOMAIN, metadata=flags))
    return rpc_status.to_status(status)


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: errors.HeadraceError) -> NoReturn:
    """End a call with an error."""
    await cast(Any, context).abort_with_status(to_status(error))
    raise AssertionError("abort_with_status returned")


def from_rpc_error(error: grpc.aio.AioRpcError) -> errors.HeadraceError:
    """The error a peer of ours sent, or the nearest one for a failure of the link itself."""
    proto = common_pb2.Error(code=error.code().value[0], message=error.details() or error.code().name)
    status = rpc_status.from_call(cast(grpc.Call, error)) if error.trailing_metadata() is not None else None
    for detail in status.details if status is not None else ():
        _read_detail(detail, proto)
    if status is None and proto.code in (code_pb2.UNAVAILABLE, code_pb2.UNKNOWN, code_pb2.CANCELLED):
        return errors.Unavailable(proto.message)
    return errors.from_proto(proto)


def _read_detail(detail: Any, proto: common_pb2.Error) -> None:
    bad, retry, info = error_details_pb2.BadRequest(), error_details_pb2.RetryInfo(), error_details_pb2.ErrorInfo()
    if detail.Unpack(bad) and bad.field_violations:
        proto.field = bad.field_violations[0].field
    elif detail.Unpack(retry):
        proto.retry_after_ms = retry.retry_delay.ToMilliseconds()
    elif detail.Unpack(info) and info.domain == _DOMAIN:
        proto.safe_to_retry = info.metadata.get("safe_to_retry") == "true"
        proto.safe_to_resume = info.metadata.get("safe_to_resume") == "true"
        if info.reason.islower() and not info.reason.endswith("_error"):
            proto.reason = info.reason
