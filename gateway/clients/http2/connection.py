"""One HTTP/2 connection as an asyncio protocol. h2 does the protocol; what it learns goes to the calls at once.

Plain DATA frames, which is where the messages are, are written and read here: h2 makes objects of a frame and its flags, and a
message would cost five times as much. It is told what they use of the windows it keeps.

Why not grpc.aio: there a message passes three threads before the event loop sees it. See docs/decisions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import cast

from h2 import events
from h2.errors import ErrorCodes
from h2.exceptions import NoAvailableStreamIDError, ProtocolError
from hpack import NeverIndexedHeaderTuple

from gateway.clients.http2.call import Call
from gateway.clients.http2.protocol import LARGEST_FRAME, WINDOW, Protocol
from gateway.clients.http2.status import Status, unavailable

_HIGH_WATER = 256 << 10
_PING_EVERY_S, _PONG_WITHIN_S = 30.0, 10.0
_GRPC_HEADERS = (("te", "trailers"), ("content-type", "application/grpc"))

_HEAD_BYTES = 9
_DATA, _HEADERS, _WINDOW_UPDATE, _CONTINUATION = 0, 1, 8, 9
_END_STREAM_OR_PADDED, _END_HEADERS = 0x09, 0x04


class Connection(asyncio.Protocol):
    """Carries calls until it is lost; then every open call ends as unavailable and `alive` is False."""

    def __init__(self, authority: str, scheme: str) -> None:
        self._fixed = ((":method", "POST"), (":scheme", scheme), (":authority", authority))
        self._transport: asyncio.Transport | None = None
        self._h2 = Protocol()
        self._calls: dict[int, Call] = {}
        self._partial = b""
        self._in_headers = False
        self._taken = 0
        self._queued: list[bytes] = []
        self._flushing = False
        self._pong: asyncio.TimerHandle | None = None
        self._ping: asyncio.TimerHandle | None = None
        self._heard = False
        self._paused = False
        self.alive = False

    @property
    def congested(self) -> bool:
        """Does the socket not take what was written?"""
        return self._paused

    def call(self, path: str, headers: Sequence[tuple[str, str]], on_message: Callable[[bytes], None]) -> Call:
        """Begin a call. On a connection that is lost, or full, it ends at once, as unavailable."""
        if not self.alive:
            return self._refused("the connection is closed", on_message)
        try:
            call = Call(self, self._h2.get_next_available_stream_id(), on_message)
            # What differs from call to call would only fill the peer's table of headers, and a token does not belong there.
            own = [NeverIndexedHeaderTuple(name, value) for name, value in headers]
            self._h2.send_headers(call.stream, [*self._fixed, (":path", path), *_GRPC_HEADERS, *own])
        except ProtocolError as error:
            self.alive = self.alive and not isinstance(error, NoAvailableStreamIDError)
            return self._refused(str(error), on_message)
        self._calls[call.stream] = call
        self._flush_soon()
        return call

    def _refused(self, message: str, on_message: Callable[[bytes], None]) -> Call:
        call = Call(self, 0, on_message)
        call.end(unavailable(message))
        return call

    def room(self, call: Call) -> int:
        """The bytes that may leave now in one frame; not positive where flow control allows none."""
        return self._h2.room(call.stream)

    def send(self, call: Call, data: bytes | bytearray, *, last: bool) -> None:
        """Queue a frame of at most `room` bytes. They leave with `flush`, at the latest at the end of the event loop's turn."""
        if last:
            with suppress(ProtocolError):
                self._h2.send_data(call.stream, bytes(data), end_stream=True)
        else:
            self._h2.spent(call.stream, len(data))
            self._queue(_frame(_DATA, call.stream, data))

    def _queue(self, frame: bytes) -> None:
        """After what h2 has to say."""
        self._queued += (self._h2.data_to_send(), frame)

    def reset(self, call: Call, code: ErrorCodes) -> None:
        """Tell the peer that a stream is over."""
        with suppress(ProtocolError):
            self._h2.reset_stream(call.stream, code)
            self._flush_soon()

    def forget(self, call: Call) -> None:
        """A call has ended."""
        self._calls.pop(call.stream, None)

    def flush(self) -> None:
        """Write what is queued, as one piece."""
        self._flushing = False
        data = self._h2.data_to_send()
        if self._queued:
            data = b"".join((*self._queued, data))
            self._queued.clear()
        if data and self._transport is not None:
            self._transport.write(data)

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self.flush)

    def close(self, message: str = "the connection was closed") -> None:
        """Leave."""
        self.flush()
        if self._transport is not None:
            self._transport.close()
        self._end(message)

    # ------------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)
        self.alive = True
        self.flush()
        self._ping = asyncio.get_running_loop().call_later(_PING_EVERY_S, self._keep_alive)

    def connection_lost(self, exc: Exception | None) -> None:
        """End what runs."""
        self._transport = None
        self._end(f"the connection was lost: {exc}" if exc is not None else "the connection was closed by the peer")

    def pause_writing(self) -> None:
        """The socket is full."""
        self._paused = True

    def resume_writing(self) -> None:
        """The socket takes more."""
        self._paused = False
        for call in list(self._calls.values()):
            call.told_writable()

    def data_received(self, data: bytes) -> None:
        """Hand on what whole frames say; a partial one waits for its rest."""
        self._heard = True
        try:
            self._partial = self._frames(self._partial + data if self._partial else data)
        except (ProtocolError, UnicodeDecodeError) as error:
            self.close(f"the peer breaks the protocol: {error}")
        else:
            self.flush()

    def _frames(self, data: bytes) -> bytes:
        """Hand on the whole frames at the beginning of `data`; returns what is left."""
        at, size = 0, len(data)
        while size - at >= _HEAD_BYTES:
            length = int.from_bytes(data[at : at + 3])
            end = at + _HEAD_BYTES + length
            if length > LARGEST_FRAME:
                self._to_h2(data[at:])
                return b""
            if end > size:
                break
            if (call := self._plain_data(data, at)) is not None:
                self._took(call, length)
                call.take_data(data[at + _HEAD_BYTES : end])
            else:
                self._to_h2(data[at:end])
            at = end
        return data[at:]

    def _plain_data(self, data: bytes, at: int) -> Call | None:
        """The call of a frame that is nothing but a piece of a message; what is out of place is for h2 to see."""
        if data[at + 3] != _DATA or data[at + 4] & _END_STREAM_OR_PADDED or self._in_headers:
            return None
        call = self._calls.get(int.from_bytes(data[at + 5 : at + _HEAD_BYTES]))
        return call if call is not None and call.opened else None

    def _to_h2(self, frame: bytes) -> None:
        if frame[3] in (_HEADERS, _CONTINUATION):
            self._in_headers = not frame[4] & _END_HEADERS
        for event in self._h2.receive_data(frame):
            self._take(event)

    def _took(self, call: Call, size: int) -> None:
        """Let the peer send as much again, now and then."""
        self._taken += size
        call.taken += size
        if self._taken >= WINDOW // 4:
            self._queue(_frame(_WINDOW_UPDATE, 0, self._taken.to_bytes(4)))
            self._taken = 0
        if call.taken >= WINDOW // 4:
            self._queue(_frame(_WINDOW_UPDATE, call.stream, call.taken.to_bytes(4)))
            call.taken = 0

    # ------------------------------------------------------------------ what h2 has learnt

    def _take(self, event: events.Event) -> None:
        match event:
            case events.DataReceived():
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                if (call := self._calls.get(event.stream_id)) is not None:
                    call.take_data(event.data)
            case events.ResponseReceived() | events.TrailersReceived():
                if (call := self._calls.get(event.stream_id)) is not None:
                    call.take_headers([(str(name), str(value)) for name, value in event.headers])
            case events.StreamEnded():
                if (call := self._calls.get(event.stream_id)) is not None:
                    call.take_end()
            case events.StreamReset():
                if (call := self._calls.get(event.stream_id)) is not None:
                    call.take_reset(event.error_code)
            case events.WindowUpdated(stream_id=stream) if stream:
                if (call := self._calls.get(stream)) is not None:
                    call.window_opened()
            case events.WindowUpdated() | events.RemoteSettingsChanged():
                for call in list(self._calls.values()):
                    call.window_opened()
            case events.PingAckReceived() if self._pong is not None:
                self._pong.cancel()
                self._pong = None
            case events.ConnectionTerminated():
                self._go_away(event.last_stream_id or 0, event.additional_data or b"")

    def _go_away(self, last: int, why: bytes) -> None:
        """No new calls; those the peer has not seen have not run."""
        self.alive = False
        for call in [call for call in self._calls.values() if call.stream > last]:
            call.end(unavailable(f"the peer is leaving {why[:80].decode(errors='replace')}".rstrip()))

    # ------------------------------------------------------------------ life and death

    def _keep_alive(self) -> None:
        """Ask a peer that was silent for a while; one that does not answer is gone."""
        loop = asyncio.get_running_loop()
        if not self._heard and self._pong is None:
            self._h2.ping(b"headrace")
            self.flush()
            self._pong = loop.call_later(_PONG_WITHIN_S, self._silent)
        self._heard = False
        self._ping = loop.call_later(_PING_EVERY_S, self._keep_alive)

    def _silent(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._end(f"the peer did not answer a ping within {_PONG_WITHIN_S:g} s")

    def _end(self, message: str) -> None:
        self.alive = False
        for timer in (self._ping, self._pong):
            if timer is not None:
                timer.cancel()
        status: Status = unavailable(message)
        for call in list(self._calls.values()):
            call.end(status)


def _frame(kind: int, stream: int, payload: bytes | bytearray) -> bytes:
    """A frame without flags."""
    return b"".join((len(payload).to_bytes(3), bytes((kind, 0)), stream.to_bytes(4), payload))
