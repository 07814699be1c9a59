"""One client's connection: what is no HTTP is refused in the words of every other refusal, and who says nothing is let go."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from aiohttp import web

from gateway.api.errors import dumps, openai_body
from services.common.errors import Internal, InvalidRequest

log = logging.getLogger(__name__)

SERVER = "headrace"
_LOOKS, _LOOK_S = 5, 0.1


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """max_line: bytes of the request line and of each header. first_s: time for the first request's headers to come.

    idle_s: silence between two requests after which the connection is closed. It should exceed that of a proxy in front,
    which would otherwise send a request just when this end closes.
    """

    max_line: int = 16_384
    first_s: float = 30.0
    idle_s: float = 620.0


class Connection(web.RequestHandler):
    """Made by the listening socket for each client. `server` is the application's."""

    __slots__ = ("_first_s", "_give_up")

    def __init__(self, server: web.Server, limits: ConnectionLimits) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=limits.idle_s,
            max_line_size=limits.max_line,
            max_field_size=limits.max_line,
            auto_decompress=False,
            access_log=None,  # type: ignore[arg-type]
        )
        self._first_s = limits.first_s
        self._give_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client has connected."""
        super().connection_made(transport)
        self._give_up = asyncio.get_running_loop().call_later(self._first_s, self._look_again, _LOOKS)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client has gone."""
        self.spoke()
        super().connection_lost(exc)

    def _look_again(self, looks: int) -> None:
        """A process that stood still has not read what came meanwhile: the client is let go after some more turns of the loop."""
        if looks:
            self._give_up = asyncio.get_running_loop().call_later(_LOOK_S, self._look_again, looks - 1)
        else:
            self.force_close()

    def spoke(self) -> None:
        """A request has come."""
        if self._give_up is not None:
            self._give_up.cancel()
            self._give_up = None

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """The answer to what could not be read as a request, or to what failed outside every handler; the connection ends with it."""
        self.spoke()
        if request.writer.output_size > 0:
            raise ConnectionError("part of an answer has been sent already")
        if status < 500:
            log.debug("not a request", extra={"peer": str(request.remote), "reason": _first_line(message or "")})
            body = openai_body(InvalidRequest(f"this is not an HTTP request: {_first_line(message or 'it cannot be parsed')}"))
        else:
            log.error("a connection failed", exc_info=exc, extra={"peer": str(request.remote)})
            body = openai_body(Internal("internal error", code="internal_error"))
        answer = web.Response(status=status, body=dumps(body), content_type="application/json", headers={"server": SERVER})
        answer.force_close()
        return answer


def _first_line(message: str) -> str:
    return message.strip().split("\n", 1)[0].strip().rstrip(":.")[:200]


async def expect_later(request: web.Request) -> None:
    """`Expect: 100-continue` is granted by who reads the body, so that a request that is refused never sends it."""


async def grant_body(request: web.Request) -> None:
    """Tell a client that waits for it to send the body."""
    waits = request.headers.get("expect", "").lower() == "100-continue"
    if waits and request.version >= (1, 1) and not request.content.total_bytes:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
