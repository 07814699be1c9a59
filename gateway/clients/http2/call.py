"""One gRPC call on an HTTP/2 stream: whole messages in and out, one status at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from h2.errors import ErrorCodes

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
    opened: the peer has sent its first headers. taken: bytes received that the peer has not been told may be sent again.
    window: bytes the peer takes of this call, as far as the connection's own window allows.
    """

    def __init__(self, connection: Connection, stream: int, on_message: Callable[[bytes], None], *, window: int = 0) -> None:
        self.stream = stream
        self.ended: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        self.on_writable: Callable[[], None] | None = None
        self.opened = False
        self.taken = 0
        self.window = window
        self._connection = connection
        self._on_message = on_message
        self._received = bytearray()
        self._headers: list[tuple[str, str]] = []
        self._unsent = bytearray()
        self._last_waits = False
        self._said_all = False

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
        self._last_waits = last
        self._pump()
        self._connection.flush()

    def _pump(self) -> None:
        """Queue what flow control allows of what waits."""
        unsent, connection = self._unsent, self._connection
        while unsent and (room := connection.room(self)) > 0:
            last = self._last_waits and len(unsent) <= room
            connection.send(self, unsent[:room], last=last)
            del unsent[:room]
            self._said_all |= last
        if self._last_waits and not unsent and not self._said_all:
            self._said_all = True
            connection.send(self, b"", last=True)

    def window_opened(self) -> None:
        """Flow control allows more."""
        if self._unsent:
            self._pump()
            self.told_writable()

    def told_writable(self) -> None:
        """What held messages back may have given way."""
        if self.on_writable is not None and self.writable:
            self.on_writable()

    def cancel(self) -> None:
        """End the call, unless it has ended."""
        if not self.ended.done():
            self._connection.reset(self, ErrorCodes.CANCEL)
            self.end(_CANCELLED)

    def end(self, status: Status) -> None:
        """The call has its status; only the first counts."""
        if not self.ended.done():
            self.ended.set_result(status)
            self._unsent.clear()
            self._connection.forget(self)

    # ------------------------------------------------------------------ called by the connection

    def take_data(self, payload: bytes) -> None:
        """Bytes of messages."""
        if self._received:
            self._received += payload
            del self._received[: self._deliver(bytes(self._received))]
        else:
            used = self._deliver(payload)
            if used < len(payload):
                self._received += payload[used:]

    def _deliver(self, data: bytes) -> int:
        """Hand on every complete message; returns the bytes they took."""
        at, size = 0, len(data)
        while size - at >= _PREFIX_BYTES and not self.ended.done():
            length = int.from_bytes(data[at + 1 : at + _PREFIX_BYTES])
            if data[at] or length > MAX_MESSAGE_BYTES:
                self._connection.reset(self, ErrorCodes.CANCEL)
                what = "a compressed message" if data[at] else f"a message of {length} bytes"
                self.end(Status(13 if data[at] else 8, f"{what} is not taken"))
                return size
            end = at + _PREFIX_BYTES + length
            if end > size:
                break
            self._on_message(data[at + _PREFIX_BYTES : end])
            at = end
        return at

    def take_headers(self, pairs: list[tuple[str, str]]) -> None:
        """The first headers, or the trailers."""
        self.opened = True
        self._headers += pairs

    def take_end(self) -> None:
        """The peer has said all, and will not listen to more."""
        if self.ended.done():
            return
        if not self._said_all:
            self._connection.reset(self, ErrorCodes.CANCEL)
        self.end(from_trailers(self._headers))

    def take_reset(self, code: int) -> None:
        """The peer has ended the stream out of turn."""
        self.end(from_trailers(self._headers) if code == ErrorCodes.NO_ERROR and self._headers else from_reset(code))
