"""One error tree, spelled for each door."""

from __future__ import annotations

import json
import logging
from typing import Any

from services.common.errors import HeadraceError, Internal, InvalidRequest, Overloaded, Unavailable

log = logging.getLogger(__name__)

spell = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # compact; json.dumps would make an encoder each time

_OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}


def as_headrace(error: BaseException, request_id: str) -> HeadraceError:
    """The error itself, or Internal for one that nobody foresaw; that one is logged with its traceback."""
    if isinstance(error, HeadraceError):
        return error
    log.error("unexpected error", exc_info=error, extra={"request_id": request_id})
    return Internal(f"internal error; the request id is {request_id}", code="internal_error")


def openai_body(error: HeadraceError) -> dict[str, Any]:
    """The error as OpenAI clients expect it."""
    kind = _OPENAI_TYPES.get(error.http_status, "invalid_request_error" if error.http_status < 500 else "internal_server_error")
    return {"error": {"message": error.message, "type": kind, "param": error.field or None, "code": error.code}}


def native_body(error: HeadraceError) -> dict[str, Any]:
    """The same body, with the status inside: native clients read it from streams too."""
    body = openai_body(error)
    body["error"]["status_code"] = error.http_status
    return body


def dumps(value: Any) -> bytes:
    """JSON as it goes over the wire: compact UTF-8."""
    return spell(value).encode()


def retry_after(error: HeadraceError) -> dict[str, str]:
    """The Retry-After header, in whole seconds, where waiting helps."""
    if not isinstance(error, Overloaded | Unavailable) and error.retry_after_ms is None:
        return {}
    wait_ms = 1000 if error.retry_after_ms is None else error.retry_after_ms
    return {"retry-after": str(max(1, -(-wait_ms // 1000)))}


def outcome_label(error: HeadraceError | None) -> str:
    """The metric label of how a request ended."""
    if error is None:
        return "ok"
    if isinstance(error, InvalidRequest):
        return "invalid_request"
    names = {
        401: "unauthenticated",
        403: "permission_denied",
        404: "not_found",
        409: "conflict",
        413: "payload_too_large",
        429: "overloaded",
        499: "cancelled",
        503: "unavailable",
        504: "deadline_exceeded",
    }
    return names.get(error.http_status, "invalid_request" if error.http_status < 500 else "internal")
