"""How a gRPC call ended."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import unquote

import grpc
from h2.errors import ErrorCodes

from services.common.errors import HeadraceError
from services.common.grpc_errors import from_rpc_error

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_BY_HTTP = {400: 13, 401: 16, 403: 7, 404: 12, 429: 14, 502: 14, 503: 14, 504: 14}
_BY_RESET = {
    ErrorCodes.NO_ERROR: 13,
    ErrorCodes.REFUSED_STREAM: 14,
    ErrorCodes.CANCEL: 1,
    ErrorCodes.ENHANCE_YOUR_CALM: 8,
}


@dataclass(frozen=True, slots=True)
class Status:
    """code: gRPC's number. trailers: what came with it; names that end in -bin have bytes."""

    code: int
    message: str = ""
    trailers: tuple[tuple[str, str | bytes], ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Did the call end well?"""
        return self.code == 0

    def error(self) -> HeadraceError:
        """The error of a call that did not end well."""
        code = _CODES.get(self.code, grpc.StatusCode.UNKNOWN)
        trailers = grpc.aio.Metadata(*self.trailers)
        return from_rpc_error(grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailers, self.message, None))


_OK = Status(0)


def unavailable(message: str) -> Status:
    """The link itself has failed."""
    return Status(grpc.StatusCode.UNAVAILABLE.value[0], message)


def from_trailers(pairs: Iterable[tuple[str, str]]) -> Status:
    """The status a server sent."""
    found = dict(pairs)
    said = found.get("grpc-status")
    if said == "0":
        return _OK
    if said is None or not said.isdigit():
        return _without_status(found.get(":status", ""))
    kept = tuple((name, _value(name, text)) for name, text in found.items() if not name.startswith((":", "grpc-status")) or "-bin" in name)
    return Status(int(said), unquote(found.get("grpc-message", "")), kept)


def from_reset(code: int) -> Status:
    """The status of a stream the peer has reset."""
    name = ErrorCodes(code).name if code in set(ErrorCodes) else str(code)
    return Status(_BY_RESET.get(ErrorCodes(code), 13) if code in set(ErrorCodes) else 13, f"the peer has reset the stream: {name}")


def _without_status(http: str) -> Status:
    code = _BY_HTTP.get(int(http), 2) if http.isdigit() else 2
    return Status(code, f"the peer answered with HTTP status {http or 'missing'} and no gRPC status")


def _value(name: str, text: str) -> str | bytes:
    if not name.endswith("-bin"):
        return text
    return base64.b64decode(text + "=" * (-len(text) % 4))
