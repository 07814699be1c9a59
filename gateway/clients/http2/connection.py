"""One HTTP/2 connection as an asyncio protocol. What arrives goes to the calls at once, from the socket's reader.

    frame ─► of the connection (settings, ping, window, goaway) ─► h2
          └► of a stream (headers, data, window, reset) ─────────► its Call, here

h2 could keep the streams as well, but it makes objects of every frame, flag and header, and searches tables for headers that
are the same in every call: a request took half a millisecond there.

Why not grpc.aio: there a message passes three threads before the event loop sees it. See docs/decisions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import cast

from h2 import events
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

from gateway.clients.http2.call import Call
from gateway.clients.http2.frames import MOST_WINDOW, Flag, FrameReader, Kind, frame, number, without_padding
from gateway.clients.http2.headers import HeaderReader, HeaderSpeller
from gateway.clients.http2.protocol import LARGEST_HEADERS, WINDOW, Protocol
from gateway.clients.http2.status import Status, unavailable

_HIGH_WATER = 256 << 10
_PING_EVERY_S, _PONG_WITHIN_S = 30.0, 10.0
_GRPC_HEADERS = (("te", "trailers"), ("content-type", "application/grpc"))


class Connection(asyncio.Protocol):
    """Carries calls until it is lost; then every open call ends as unavailable and `alive` is False."""

    def __init__(self, authority: str, scheme: str) -> None:
        self._fixed = ((":method", "POST"), (":scheme", scheme), (":authority", authority))
        self._transport: asyncio.Transport | None = None
        self._h2 = Protocol()
        self._calls: dict[int, Call] = {}
        self._next_stream = 1
        self._reader = FrameReader()
        self._speller, self._headers = HeaderSpeller(), HeaderReader(LARGEST_HEADERS)
        self._block: tuple[int, int, bytes] | None = None  # headers that have begun: stream, flags, so far
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
        if len(self._calls) >= self._h2.remote_settings.max_concurrent_streams or self._next_stream > MOST_WINDOW:
            self.alive = self._next_stream <= MOST_WINDOW
            return self._refused("the connection has no room for another call", on_message)
        call = Call(self, self._next_stream, on_message, window=self._h2.remote_settings.initial_window_size)
        self._next_stream += 2
        block = self._speller.spell((*self._fixed, (":path", path), *_GRPC_HEADERS), headers)
        most = self._h2.max_outbound_frame_size
        parts = [block[at : at + most] for at in range(0, len(block), most)]
        for place, part in enumerate(parts):
            kind = Kind.CONTINUATION if place else Kind.HEADERS
            self._queued.append(frame(kind, call.stream, part, Flag.END_HEADERS if place == len(parts) - 1 else 0))
        self._calls[call.stream] = call
        self._flush_soon()
        return call

    def _refused(self, message: str, on_message: Callable[[bytes], None]) -> Call:
        call = Call(self, 0, on_message)
        call.end(unavailable(message))
        return call

    def room(self, call: Call) -> int:
        """The bytes that may leave now in one frame; not positive where flow control allows none."""
        return min(self._h2.outbound_flow_control_window, call.window, self._h2.max_outbound_frame_size)

    def send(self, call: Call, data: bytes | bytearray, *, last: bool) -> None:
        """Queue a frame of at most `room` bytes. They leave with `flush`, at the latest at the end of the event loop's turn."""
        self._h2.outbound_flow_control_window -= len(data)
        call.window -= len(data)
        self._queued.append(frame(Kind.DATA, call.stream, data, Flag.END_STREAM if last else 0))

    def reset(self, call: Call, code: ErrorCodes) -> None:
        """Tell the peer that a stream is over."""
        self._queued.append(frame(Kind.RST_STREAM, call.stream, int(code).to_bytes(4)))
        self._flush_soon()

    def forget(self, call: Call) -> None:
        """A call has ended."""
        self._calls.pop(call.stream, None)

    def flush(self) -> None:
        """Write what is queued, as one piece."""
        self._flushing = False
        data = self._h2.data_to_send()
        if self._queued:
            data = b"".join((data, *self._queued))
            self._queued.clear()
        if data and self._transport is not None and not self._transport.is_closing():  # a loop may close it before it says so
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
        """Hand on what whole frames say."""
        self._heard = True
        try:
            for whole in self._reader.feed(data):
                self._frame(whole)
        except ProtocolError as error:
            with suppress(ProtocolError):
                self._h2.close_connection(error.error_code)
            self.close(f"the peer breaks the protocol: {error}")
        else:
            self.flush()

    def _frame(self, whole: bytes) -> None:
        kind, flags, stream = whole[3], whole[4], int.from_bytes(whole[5:9]) & MOST_WINDOW
        if self._block is not None and (kind != Kind.CONTINUATION or stream != self._block[0]):
            raise ProtocolError("a frame in the middle of headers")
        if kind not in Kind.ALL or (kind == Kind.WINDOW_UPDATE and not stream):
            for event in self._h2.receive_data(whole):
                self._learnt(event)
        elif not 0 < stream < self._next_stream or not stream % 2:
            raise ProtocolError(f"a frame for stream {stream}, which was never begun")
        elif kind == Kind.DATA:
            self._data(stream, flags, whole[9:])
        else:
            self._other(kind, stream, flags, whole[9:])

    # ------------------------------------------------------------------ frames of streams; those of calls that have ended may still come

    def _data(self, stream: int, flags: int, payload: bytes) -> None:
        call = self._calls.get(stream)
        self._took(call, len(payload))
        if call is None:
            return
        if not call.opened:
            raise ProtocolError("data before headers")
        call.take_data(without_padding(payload, flags) if flags & Flag.PADDED else payload)
        if flags & Flag.END_STREAM:
            call.take_end()

    def _took(self, call: Call | None, size: int) -> None:
        """Let the peer send as much again, now and then."""
        self._taken += size
        if self._taken >= WINDOW // 4:
            self._queued.append(frame(Kind.WINDOW_UPDATE, 0, self._taken.to_bytes(4)))
            self._taken = 0
        if call is not None:
            call.taken += size
            if call.taken >= WINDOW // 4:
                self._queued.append(frame(Kind.WINDOW_UPDATE, call.stream, call.taken.to_bytes(4)))
                call.taken = 0

    def _other(self, kind: int, stream: int, flags: int, payload: bytes) -> None:
        call = self._calls.get(stream)
        if kind == Kind.HEADERS:
            self._add_headers(stream, flags, without_padding(payload, flags), flags)
        elif kind == Kind.CONTINUATION:
            if self._block is None:
                raise ProtocolError("headers that go on without having begun")
            _, begun, so_far = self._block
            self._add_headers(stream, begun, so_far + payload, flags)
        elif kind == Kind.RST_STREAM:
            code = number(payload)
            if call is not None:
                call.take_reset(code)
        else:
            room = number(payload) & MOST_WINDOW
            if call is None:
                return
            call.window += room
            if not room or call.window > MOST_WINDOW:
                raise ProtocolError("a window that cannot be")
            call.window_opened()

    def _add_headers(self, stream: int, begun: int, block: bytes, flags: int) -> None:
        """`begun`: the flags of the frame the headers began with; `flags`: those of their last."""
        if len(block) > LARGEST_HEADERS:
            raise ProtocolError("headers that are too large")
        if not flags & Flag.END_HEADERS:
            self._block = (stream, begun, block)
            return
        self._block = None
        pairs = self._headers.read(block)
        call = self._calls.get(stream)
        if call is None or any(name == ":status" and value.startswith("1") for name, value in pairs[:1]):
            return
        if call.opened and not begun & Flag.END_STREAM:
            raise ProtocolError("headers in the middle of an answer")
        call.take_headers(pairs)
        if begun & Flag.END_STREAM:
            call.take_end()

    # ------------------------------------------------------------------ what h2 has learnt

    def _learnt(self, event: events.Event) -> None:
        match event:
            case events.WindowUpdated():
                self._room_for_all()
            case events.RemoteSettingsChanged():
                if (window := event.changed_settings.get(SettingCodes.INITIAL_WINDOW_SIZE)) is not None:
                    for call in self._calls.values():
                        call.window += window.new_value - (window.original_value or 0)
                self._room_for_all()
            case events.PingAckReceived() if self._pong is not None:
                self._pong.cancel()
                self._pong = None
            case events.ConnectionTerminated():
                self._go_away(event.last_stream_id or 0, event.additional_data or b"")

    def _room_for_all(self) -> None:
        for call in list(self._calls.values()):
            call.window_opened()

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
