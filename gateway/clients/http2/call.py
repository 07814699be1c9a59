"""One gRPC call on an HTTP/2 stream: whole messages in and out, one status at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.clients.http2 import frames
from gateway.clients.http2.frames import ErrorCode
from gateway.clients.http2.status import Status, from_reset, from_trailers
from services.common.grpc_options import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from gateway.clients.http2.connection import Connection

_PREFIX_BYTES = 5
_CANCELLED = Status(1, "the call was cancelled")


class Call:
    """Made by `Connection.call`.

    on_message is called from the socket's reader with each message, in order; it may not block. on_writable is called
    when what was sent has left this process after it could not. `ended` resolves to the call's one status.
    """

    def __init__(self, connection: Connection, stream: int, window: int, on_message: Callable[[bytes], None]) -> None:
        self.stream = stream
        self.window = window
        self.ended: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        self.on_writable: Callable[[], None] | None = None
        self._connection = connection
        self._on_message = on_message
        self._received = bytearray()
        self._uncredited = 0
        self._headers: list[tuple[str, str]] = []
        self._unsent = bytearray()
        self._sent_last = False

    @property
    def writable(self) -> bool:
        """Would a message leave at once?"""
        return not self._unsent and not self._connection.congested and not self.ended.done()

    def send(self, *messages: bytes, last: bool = False) -> None:
        """Send messages, as one piece where flow control allows. `last`: no more will follow. Without effect after the end."""
        if self.ended.done():
            return
        for message in messages:
            self._unsent += b"\0" + len(message).to_bytes(4) + message
        self._sent_last = last
        self.pump()

    def pump(self) -> None:
        """Send what flow control allows of what waits."""
        unsent, connection = self._unsent, self._connection
        while unsent:
            size = min(len(unsent), self.window, connection.window, connection.largest_frame)
            if size <= 0:
                return
            self.window -= size
            connection.window -= size
            flags = frames.END_STREAM if self._sent_last and size == len(unsent) else 0
            connection.write(frames.head(size, frames.DATA, flags, self.stream) + unsent[:size])
            del unsent[:size]

    def told_writable(self) -> None:
        """Flow control or the socket has given way."""
        if self._unsent:
            self.pump()
        if self.on_writable is not None and self.writable:
            self.on_writable()

    def cancel(self) -> None:
        """End the call, unless it has ended."""
        if not self.ended.done():
            self._connection.reset(self, ErrorCode.CANCEL)
            self.end(_CANCELLED)

    def end(self, status: Status) -> None:
        """The call has its status; only the first counts."""
        if not self.ended.done():
            self.ended.set_result(status)
            self._unsent.clear()
            self._connection.forget(self)

    # ------------------------------------------------------------------ called by the connection

    def take_data(self, payload: bytes, *, consumed: int, last: bool) -> None:
        """Bytes of messages. `consumed`: what they took of the window, padding included."""
        self._uncredited += consumed
        if self._uncredited >= self._connection.credit_at:
            self._connection.write(frames.window_update(self.stream, self._uncredited))
            self._uncredited = 0
        if self._received:
            self._received += payload
            del self._received[: self._deliver(bytes(self._received))]
        else:
            used = self._deliver(payload)
            if used < len(payload):
                self._received += payload[used:]
        if last:
            self.end(from_trailers(self._headers))

    def _deliver(self, data: bytes) -> int:
        """Hand on every complete message; returns the bytes they took."""
        at, size = 0, len(data)
        while size - at >= _PREFIX_BYTES and not self.ended.done():
            length = int.from_bytes(data[at + 1 : at + _PREFIX_BYTES])
            if data[at] or length > MAX_MESSAGE_BYTES:
                self._connection.reset(self, ErrorCode.CANCEL)
                what = "a compressed message" if data[at] else f"a message of {length} bytes"
                self.end(Status(13 if data[at] else 8, f"{what} is not taken"))
                return size
            end = at + _PREFIX_BYTES + length
            if end > size:
                break
            self._on_message(data[at + _PREFIX_BYTES : end])
            at = end
        return at

    def take_headers(self, pairs: list[tuple[str, str]], *, last: bool) -> None:
        """The first headers, or with `last` the trailers."""
        self._headers += pairs
        if last:
            self.end(from_trailers(self._headers))

    def take_reset(self, code: int) -> None:
        """The peer has ended the stream out of turn."""
        self.end(from_trailers(self._headers) if code == ErrorCode.NO_ERROR and self._headers else from_reset(code))
