"""One HTTP/2 connection as an asyncio protocol.

Why not grpc.aio: there a message passes three threads before the event loop sees it, 220 µs of processor time for each
at 200 messages a second on a virtual machine, where this takes 30. See docs/decisions.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from typing import cast

from hpack import Decoder, HPACKError

from gateway.clients.http2 import frames
from gateway.clients.http2.call import Call
from gateway.clients.http2.frames import ErrorCode, Setting
from gateway.clients.http2.status import Status, unavailable

_WINDOW = 16 << 20
_LARGEST_FRAME = 1 << 20
_LARGEST_HEADERS = 64 << 10
_HIGH_WATER = 256 << 10
_PING_EVERY_S, _PONG_WITHIN_S = 30.0, 10.0


class BrokenPeer(Exception):
    """The peer does not follow the protocol."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Connection(asyncio.Protocol):
    """Carries calls until it is lost; then every open call ends as unavailable and `alive` is False."""

    credit_at = _WINDOW // 2

    def __init__(self, authority: str, scheme: str) -> None:
        self._fixed = ((":method", "POST"), (":scheme", scheme), (":authority", authority))
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._calls: dict[int, Call] = {}
        self._next_stream = 1
        self._decoder = Decoder()
        self._block: tuple[int, int, bytes] | None = None  # stream, flags and bytes of headers that are not complete
        self._uncredited = 0
        self._stream_window = frames.DEFAULT_WINDOW
        self._pong: asyncio.TimerHandle | None = None
        self._ping: asyncio.TimerHandle | None = None
        self._heard = False
        self._paused = False
        self.window = frames.DEFAULT_WINDOW
        self.largest_frame = frames.DEFAULT_FRAME
        self.alive = False

    @property
    def congested(self) -> bool:
        """Does the socket not take what was written?"""
        return self._paused

    def call(self, path: str, headers: Sequence[tuple[str, str]], on_message: Callable[[bytes], None]) -> Call:
        """Begin a call. On a connection that is lost it ends at once, as unavailable."""
        call = Call(self, self._next_stream, self._stream_window, on_message)
        if not self.alive:
            call.end(unavailable("the connection is closed"))
            return call
        self._next_stream += 2
        self._calls[call.stream] = call
        grpc_headers = (("te", "trailers"), ("content-type", "application/grpc"))
        block = frames.header_block([*self._fixed, (":path", path), *grpc_headers, *headers])
        self.write(frames.head(len(block), frames.HEADERS, frames.END_HEADERS, call.stream) + block)
        return call

    def write(self, data: bytes) -> None:
        """Put bytes on the wire."""
        if self._transport is not None:
            self._transport.write(data)

    def reset(self, call: Call, code: ErrorCode) -> None:
        """Tell the peer that a stream is over."""
        self.write(frames.reset(call.stream, code))

    def forget(self, call: Call) -> None:
        """A call has ended."""
        self._calls.pop(call.stream, None)

    def close(self, message: str = "the connection was closed") -> None:
        """Leave."""
        if self._transport is not None:
            self._transport.close()
        self._end(message)

    # ------------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)
        wanted = {
            Setting.ENABLE_PUSH: 0,
            Setting.INITIAL_WINDOW_SIZE: _WINDOW,
            Setting.MAX_FRAME_SIZE: _LARGEST_FRAME,
        }
        self.write(frames.PREFACE + frames.settings(wanted) + frames.window_update(0, _WINDOW - frames.DEFAULT_WINDOW))
        self.alive = True
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
        """Take whole frames; a partial one waits."""
        self._heard = True
        if self._buffer:
            self._buffer += data
            data = bytes(self._buffer)
            self._buffer.clear()
        try:
            used = self._take(data)
        except (struct.error, IndexError, HPACKError) as error:
            self._break(BrokenPeer(ErrorCode.PROTOCOL_ERROR, f"a frame is malformed: {error}"))
        except BrokenPeer as error:
            self._break(error)
        else:
            if used < len(data):
                self._buffer += data[used:]

    # ------------------------------------------------------------------ frames

    def _take(self, data: bytes) -> int:
        at, size = 0, len(data)
        while size - at >= frames.HEAD_BYTES:
            length, kind, flags, stream = frames.read_head(data, at)
            if length > _LARGEST_FRAME:
                raise BrokenPeer(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length} bytes")
            begin = at + frames.HEAD_BYTES
            at_end = begin + length
            if at_end > size:
                break
            self._frame(kind, flags, stream, data[begin:at_end])
            at = at_end
        return at

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if self._block is not None and kind != frames.CONTINUATION:
            raise BrokenPeer(ErrorCode.PROTOCOL_ERROR, "headers are not complete")
        if kind == frames.DATA:
            self._data(flags, stream, payload)
        elif kind == frames.WINDOW_UPDATE:
            self._credit(stream, frames.read_number(payload))
        elif kind == frames.PING:
            self._pinged(flags, payload)
        elif kind == frames.HEADERS:
            self._headers(stream, flags, frames.unpadded(payload, flags))
        elif kind == frames.CONTINUATION:
            if self._block is None or self._block[0] != stream:
                raise BrokenPeer(ErrorCode.PROTOCOL_ERROR, "a continuation of nothing")
            first_flags, block = self._block[1], self._block[2]
            self._block = None
            self._headers(stream, first_flags | flags, block + payload)
        elif kind == frames.SETTINGS:
            self._settings(flags, payload)
        elif kind == frames.RST_STREAM:
            call = self._calls.get(stream)
            if call is not None:
                call.take_reset(frames.read_number(payload))
        elif kind == frames.GOAWAY:
            self._go_away(frames.read_number(payload), payload[8:])

    def _data(self, flags: int, stream: int, payload: bytes) -> None:
        self._uncredited += len(payload)
        if self._uncredited >= self.credit_at:
            self.write(frames.window_update(0, self._uncredited))
            self._uncredited = 0
        call = self._calls.get(stream)
        if call is not None:
            body = frames.unpadded(payload, flags & frames.PADDED) if flags & frames.PADDED else payload
            call.take_data(body, consumed=len(payload), last=bool(flags & frames.END_STREAM))

    def _headers(self, stream: int, flags: int, block: bytes) -> None:
        if len(block) > _LARGEST_HEADERS:
            raise BrokenPeer(ErrorCode.ENHANCE_YOUR_CALM, f"headers of more than {_LARGEST_HEADERS} bytes")
        if not flags & frames.END_HEADERS:
            self._block = (stream, flags, block)
            return
        pairs = [(str(name), str(value)) for name, value in self._decoder.decode(block)]
        call = self._calls.get(stream)
        if call is not None:
            call.take_headers(pairs, last=bool(flags & frames.END_STREAM))

    def _credit(self, stream: int, credit: int) -> None:
        if stream == 0:
            self.window += credit
            for each in list(self._calls.values()):
                each.told_writable()
            return
        call = self._calls.get(stream)
        if call is not None:
            call.window += credit
            call.told_writable()

    def _settings(self, flags: int, payload: bytes) -> None:
        if flags & frames.ACK:
            return
        found = frames.read_settings(payload)
        self.largest_frame = found.get(Setting.MAX_FRAME_SIZE, self.largest_frame)
        self.write(frames.head(0, frames.SETTINGS, frames.ACK, 0))
        window = found.get(Setting.INITIAL_WINDOW_SIZE, self._stream_window)
        change, self._stream_window = window - self._stream_window, window
        if change:
            for call in list(self._calls.values()):
                call.window += change
                call.told_writable()

    def _pinged(self, flags: int, payload: bytes) -> None:
        if not flags & frames.ACK:
            self.write(frames.head(8, frames.PING, frames.ACK, 0) + payload)
        elif self._pong is not None:
            self._pong.cancel()
            self._pong = None

    def _go_away(self, last: int, why: bytes) -> None:
        """No new calls; those the peer has not seen have not run."""
        self.alive = False
        for call in [call for call in self._calls.values() if call.stream > last]:
            call.end(unavailable(f"the peer is leaving {why[:80].decode(errors='replace')}".rstrip()))

    def _break(self, error: BrokenPeer) -> None:
        self.write(frames.head(8, frames.GOAWAY, 0, 0) + struct.pack(">II", 0, error.code))
        self.close(f"the peer breaks the protocol: {error}")

    # ------------------------------------------------------------------ life and death

    def _keep_alive(self) -> None:
        """Ask a peer that was silent for a while; one that does not answer is gone."""
        loop = asyncio.get_running_loop()
        if not self._heard and self._pong is None:
            self.write(frames.head(8, frames.PING, 0, 0) + b"headrace")
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
