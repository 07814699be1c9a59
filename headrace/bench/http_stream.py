"""HTTP/1.1 for a load generator: one request at a time on a connection, bodies handed over as they arrive.

A parser for exactly what servers send here (status line, headers, length or chunks), written so that a streamed token
costs a few microseconds. Times are taken when bytes arrive, before they are looked at.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from urllib.parse import urlsplit

OnBody = Callable[[bytes, float], None]  # (part of the body, time it arrived)

_HEADERS_END = b"\r\n\r\n"
_LARGEST_HEADERS = 64 * 1024


class BadAnswer(Exception):
    """The peer does not speak HTTP/1.1 as expected, or left in the middle of an answer."""


class StaleConnection(BadAnswer):
    """A kept connection was closed before a byte of the answer came: the peer had given it up, and the request may be sent again."""


class Connection(asyncio.Protocol):
    """One connection. `exchange` may be called again once it has returned and `reusable` is true."""

    def __init__(self) -> None:
        self.reusable = False
        self._exchanges = 0
        self._answered = False  # a byte of the present answer has come
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._on_body: OnBody | None = None
        self._done: asyncio.Future[int] | None = None
        self._status = 0
        self._in_body = False
        self._chunked = False
        self._left = -1  # bytes of the body or of the present chunk still to come; -1: not known

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    async def exchange(self, request: bytes, on_body: OnBody) -> int:
        """Send a whole request; returns the status when the whole answer has been handed to `on_body`."""
        assert self._transport is not None
        self._done = asyncio.get_running_loop().create_future()
        self._on_body, self._in_body, self._status, self._left, self._buffer = on_body, False, 0, -1, b""
        self.reusable = self._answered = False
        self._exchanges += 1
        self._transport.write(request)
        return await self._done

    @property
    def status(self) -> int:
        """Status of the present answer, 0 before it is known."""
        return self._status

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self._answered = True
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        try:
            if not self._in_body:
                end = data.find(_HEADERS_END)
                if end < 0:
                    if len(data) > _LARGEST_HEADERS:
                        raise BadAnswer("headers without end")
                    self._buffer = data
                    return
                self._read_headers(data[:end])
                data = data[end + 4 :]
            if self._chunked:
                self._read_chunks(data, now)
            else:
                self._read_plain(data, now)
        except (BadAnswer, ValueError, IndexError) as error:
            self._fail(BadAnswer(str(error)))

    def _read_headers(self, head: bytes) -> None:
        lines = head.decode("latin-1").split("\r\n")
        self._status = int(lines[0].split(" ", 2)[1])
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        self._chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        self._keep = headers.get("connection", "keep-alive").lower() != "close"
        self._left = -1 if self._chunked else int(headers.get("content-length", -1))
        self._in_body = True
        if self._left == 0:
            self._finish()

    def _read_plain(self, data: bytes, now: float) -> None:
        if self._left >= 0:
            self._left -= len(data)
        if data and self._on_body is not None:
            self._on_body(data, now)
        if self._left == 0:
            self._finish()

    def _read_chunks(self, data: bytes, now: float) -> None:
        at, on_body = 0, self._on_body
        while at < len(data):
            line_end = data.find(b"\r\n", at)
            if line_end < 0:
                break
            size = int(data[at:line_end].split(b";")[0], 16)
            start = line_end + 2
            if len(data) < start + size + 2:
                break
            if size == 0:
                self._finish()
                return
            if on_body is not None:
                on_body(data[start : start + size], now)
            at = start + size + 2
        self._buffer = data[at:]

    def _finish(self) -> None:
        self.reusable = self._keep
        if not self._keep:
            self.close()
        if self._done is not None and not self._done.done():
            self._done.set_result(self._status)
        self._on_body = None

    def _fail(self, error: Exception) -> None:
        self.close()
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)

    def connection_lost(self, error: Exception | None) -> None:
        self.reusable = False
        if self._in_body and not self._chunked and self._left < 0:
            self._keep = False
            self._finish()  # a body that lasts until the connection closes
        else:
            kind = StaleConnection if self._exchanges > 1 and not self._answered else BadAnswer
            self._fail(kind("the server closed the connection before the answer was complete"))


class Pool:
    """Idle connections to one server; as many as requests run at once."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or (443 if parts.scheme == "https" else 80)
        self.prefix = parts.path.rstrip("/")
        self._tls = parts.scheme == "https"
        self._idle: list[Connection] = []

    async def take(self) -> Connection:
        """An idle connection, or a new one. Raises OSError if the server cannot be reached."""
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(Connection, self.host, self.port, ssl=self._tls or None)
        return made

    def put(self, connection: Connection) -> None:
        """Give a connection back; one that cannot be used again is closed."""
        if connection.reusable:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()


def post(host: str, path: str, body: bytes, headers: dict[str, str]) -> bytes:
    """Bytes of a POST request with a JSON body."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + _HEADERS_END + body
