"""A stream of server-sent events that session readers write to directly.

`write` hands bytes to the socket's transport without a task switch: at hundreds of streams that is what a token may
cost. The transport buffers what the client does not take; `StreamKeeper` looks at all streams once a second, sends
comments on silent ones, and cuts off clients whose buffer grows too large or does not move.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import HttpVersion11, web

from gateway.api.answers import quote

_COMMENT = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """max_unsent: bytes a client may be behind. stall_s: time it may accept nothing. comment_s: silence before a comment."""

    max_unsent: int = 1 << 20
    stall_s: float = 30.0
    comment_s: float = 15.0


class SseStream:
    """One response. Events written before `open` wait for it. `on_cut` is called when the client is given up."""

    def __init__(self, request: web.Request, keeper: StreamKeeper, on_cut: Callable[[], None]) -> None:
        self._request = request
        self._keeper = keeper
        self._max_unsent = keeper.limits.max_unsent
        self._on_cut = on_cut
        self._waiting: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._response: web.StreamResponse | None = None
        self._chunked = request.version >= HttpVersion11
        self.cut = False
        self._ending = False
        self.sent = 0
        self._last_write = time.monotonic()
        self._unsent_before = 0
        self._sent_before = 0
        self._moved_at = time.monotonic()

    async def open(self, headers: dict[str, str]) -> None:
        """Send status 200 and the headers, and what has been written so far.

        An HTTP/1.0 client, as proxies are by default, gets the events as they are and the end of the connection as their end.
        Nothing else: clients that trim what they read take a comment before the first event for a part of it.
        """
        response = web.StreamResponse(
            headers={"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", "x-accel-buffering": "no", **headers}
        )
        if self._chunked:
            response.enable_chunked_encoding()
        await response.prepare(self._request)
        if self._waiting:
            await response.write(b"".join(self._waiting))
        self._waiting.clear()
        self._response = response
        self._transport = self._request.transport
        self._keeper.add(self)

    def write(self, event: bytes) -> None:
        """Send whole events, each ended by a blank line. Never blocks; without effect once the client is gone."""
        transport = self._transport
        if transport is None:
            if not self.cut:
                self._waiting.append(event)
            return
        if self.cut or transport.is_closing():
            return
        size = len(event)
        transport.write(b"%x\r\n%b\r\n" % (size, event) if self._chunked else event)
        self.sent += size
        if transport.get_write_buffer_size() > self._max_unsent:
            self.give_up()

    def framed(self, head: str, tail: str) -> Callable[[str], None]:
        """A `write` for events that differ in one JSON string: it takes the text of that string."""
        before, after = head.encode(), tail.encode()
        line, end, around = b"\r\n" + before, after + b"\r\n", len(before) + len(after)

        def write(text: str) -> None:
            quoted = quote(text).encode()
            transport = self._transport
            if transport is None or self.cut or not self._chunked or transport.is_closing():
                self.write(before + quoted + after)
                return
            size = around + len(quoted)
            transport.write(b"%x%b%b%b" % (size, line, quoted, end))
            self.sent += size
            if transport.get_write_buffer_size() > self._max_unsent:
                self.give_up()

        return write

    def give_up(self) -> None:
        """Cut the client off."""
        if not self.cut:
            self.cut = True
            self._keeper.slow_clients += 1
            if self._transport is not None:
                self._transport.abort()
            self._on_cut()

    def check(self, now: float) -> None:
        """Once a second: comment on silence, give up on a client that accepts nothing."""
        transport = self._transport
        if transport is None or self.cut or transport.is_closing():
            return
        unsent = transport.get_write_buffer_size()
        taken = self._unsent_before + (self.sent - self._sent_before) - unsent
        if not unsent or taken > 0:
            self._moved_at = now
        if self.sent != self._sent_before:
            self._last_write = now
        self._unsent_before, self._sent_before = unsent, self.sent
        limits = self._keeper.limits
        if now - self._moved_at > limits.stall_s:
            self.give_up()
        elif now - self._last_write > limits.comment_s and not self._ending:
            self.write(_COMMENT)

    async def close(self) -> web.StreamResponse:
        """End the response."""
        assert self._response is not None
        self._ending = True
        if not self.cut:
            with contextlib.suppress(ConnectionError):  # a client may leave once it has read the last event
                await self._response.write_eof()
        self._keeper.remove(self)
        return self._response

    def abandon(self) -> None:
        """The handler is leaving in some other way."""
        self._keeper.remove(self)


class StreamKeeper:
    """Knows all open streams and looks after them."""

    def __init__(self, limits: StreamLimits) -> None:
        self.limits = limits
        self.slow_clients = 0
        self._streams: set[SseStream] = set()

    def add(self, stream: SseStream) -> None:
        """Begin to look after a stream."""
        self._streams.add(stream)

    def remove(self, stream: SseStream) -> None:
        """It has ended."""
        self._streams.discard(stream)

    async def run(self, interval_s: float = 1.0) -> None:
        """Look after them until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            now = time.monotonic()
            for stream in list(self._streams):
                stream.check(now)
