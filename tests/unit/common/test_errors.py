"""Errors survive the contracts and gRPC status unchanged."""

from __future__ import annotations

import grpc
import pytest

from services.common import errors
from services.common.grpc_errors import abort, from_rpc_error

CASES = [
    errors.InvalidRequest("temperature must be at least 0", field="temperature"),
    errors.ContextLengthExceeded("the limit is 8 tokens, 9 were asked for"),
    errors.NotFound("no model 'x'", field="model", code="model_not_found"),
    errors.Overloaded("the queue is full", retry_after_ms=1500),
    errors.Unavailable("draining"),
    errors.DeadlineExceeded("out of time"),
    errors.Internal("request r failed"),
    errors.Conflict("request id in use", field="rid"),
    errors.Unauthenticated("no key"),
    errors.FailedPrecondition("requests are running"),
]


def _facts(error: errors.HeadraceError) -> tuple[object, ...]:
    return (
        error.http_status,
        error.grpc_code,
        error.message,
        error.field,
        error.retry_after_ms,
        error.safe_to_retry,
        error.safe_to_resume,
        error.code,
    )


@pytest.mark.parametrize("error", CASES, ids=lambda e: type(e).__name__)
def test_round_trip_through_the_contract(error: errors.HeadraceError) -> None:
    assert _facts(errors.from_proto(error.to_proto())) == _facts(error)


@pytest.mark.parametrize("error", CASES, ids=lambda e: type(e).__name__)
async def test_round_trip_through_a_call(error: errors.HeadraceError) -> None:
    async def fail(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        await abort(context, error)

    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(fail)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", {"Fail": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/t.T/Fail", request_serializer=None, response_deserializer=None)(b"")
    await server.stop(None)
    assert _facts(from_rpc_error(caught.value)) == _facts(error)


async def test_a_dead_peer_is_unavailable_and_safe_to_retry() -> None:
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/t.T/Fail", request_serializer=None, response_deserializer=None)(b"")
    error = from_rpc_error(caught.value)
    assert isinstance(error, errors.Unavailable)
    assert error.safe_to_retry
