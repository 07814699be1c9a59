"""The one tree of errors a request can end with.

Every error maps to one HTTP status and one gRPC code (google.rpc.Code numbers) and may name the field that is wrong.
"""

from __future__ import annotations

from typing import ClassVar

from protos.common.v1 import common_pb2


class HeadraceError(Exception):
    """Base of everything a client may be told."""

    http_status: ClassVar[int] = 500
    grpc_code: ClassVar[int] = 13
    type_name: ClassVar[str] = "internal_error"

    def __init__(
        self,
        message: str,
        *,
        field: str = "",
        retry_after_ms: int | None = None,
        safe_to_retry: bool = False,
        safe_to_resume: bool = False,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.retry_after_ms = retry_after_ms
        self.safe_to_retry = safe_to_retry
        self.safe_to_resume = safe_to_resume
        self.code = code

    def to_proto(self) -> common_pb2.Error:
        """The error as the contracts carry it."""
        error = common_pb2.Error(
            code=self.grpc_code,
            message=self.message,
            field=self.field,
            safe_to_retry=self.safe_to_retry,
            safe_to_resume=self.safe_to_resume,
            reason=self.code or "",
        )
        if self.retry_after_ms is not None:
            error.retry_after_ms = self.retry_after_ms
        return error


class InvalidRequest(HeadraceError):
    """The request itself is wrong; sending it again cannot help. Names the field."""

    http_status = 400
    grpc_code = 3
    type_name = "invalid_request_error"


class ContextLengthExceeded(InvalidRequest):
    """Prompt, or prompt and output, do not fit. The message has the limit and what was asked."""

    def __init__(self, message: str, *, field: str = "prompt") -> None:
        super().__init__(message, field=field, code="context_length_exceeded")


class Unauthenticated(HeadraceError):
    """No key, or a wrong one."""

    http_status = 401
    grpc_code = 16
    type_name = "authentication_error"


class PermissionDenied(HeadraceError):
    """A valid key that may not do this."""

    http_status = 403
    grpc_code = 7
    type_name = "permission_error"


class NotFound(HeadraceError):
    """A model, worker, route or request that does not exist."""

    http_status = 404
    grpc_code = 5
    type_name = "not_found_error"


class Conflict(HeadraceError):
    """The request contradicts what is going on, such as a request id in use."""

    http_status = 409
    grpc_code = 6
    type_name = "conflict_error"


class FailedPrecondition(HeadraceError):
    """The server is not in a state for this, such as a flush while requests run."""

    http_status = 400
    grpc_code = 9
    type_name = "failed_precondition_error"


class PayloadTooLarge(HeadraceError):
    """A body or message over its limit."""

    http_status = 413
    grpc_code = 8
    type_name = "invalid_request_error"


class Overloaded(HeadraceError):
    """A queue or time limit was hit. Another worker, or a later time, may serve it."""

    http_status = 429
    grpc_code = 8
    type_name = "overloaded_error"

    def __init__(
        self, message: str, *, retry_after_ms: int = 1000, field: str = "", safe_to_retry: bool = True, code: str | None = None
    ) -> None:
        super().__init__(message, field=field, retry_after_ms=retry_after_ms, safe_to_retry=safe_to_retry, code=code)


class Cancelled(HeadraceError):
    """The client, or somebody on its behalf, ended the request."""

    http_status = 499
    grpc_code = 1
    type_name = "cancelled_error"


class Unavailable(HeadraceError):
    """Draining, or nobody there who could serve it."""

    http_status = 503
    grpc_code = 14
    type_name = "unavailable_error"

    def __init__(
        self, message: str, *, retry_after_ms: int = 1000, safe_to_retry: bool = True, safe_to_resume: bool = True, code: str | None = None
    ) -> None:
        super().__init__(message, retry_after_ms=retry_after_ms, safe_to_retry=safe_to_retry, safe_to_resume=safe_to_resume, code=code)


class DeadlineExceeded(HeadraceError):
    """The request's time ran out."""

    http_status = 504
    grpc_code = 4
    type_name = "timeout_error"


class Internal(HeadraceError):
    """Our fault. The client sees a request id, never a traceback."""


_BY_CODE: dict[int, type[HeadraceError]] = {
    1: Cancelled,
    3: InvalidRequest,
    4: DeadlineExceeded,
    5: NotFound,
    6: Conflict,
    7: PermissionDenied,
    8: Overloaded,
    9: FailedPrecondition,
    13: Internal,
    14: Unavailable,
    16: Unauthenticated,
}


def from_proto(error: common_pb2.Error) -> HeadraceError:
    """The exception for a contract's error; unknown codes become Internal."""
    cls = _BY_CODE.get(error.code, Internal)
    made = cls.__new__(cls)
    HeadraceError.__init__(
        made,
        error.message,
        field=error.field,
        retry_after_ms=error.retry_after_ms if error.HasField("retry_after_ms") else None,
        safe_to_retry=error.safe_to_retry,
        safe_to_resume=error.safe_to_resume,
        code=error.reason or None,
    )
    return made
