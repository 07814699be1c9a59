"""The gateway's own gRPC client against a real gRPC server."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from h2.errors import ErrorCodes
from hpack import Decoder, Encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.clients.http2.call import Call
from gateway.clients.http2.channel import Channel
from gateway.clients.http2.connection import Connection
from gateway.clients.http2.dial import dial
from gateway.clients.http2.headers import HeaderReader, HeaderSpeller
from gateway.clients.http2.status import Status
from services.common.errors import DeadlineExceeded, InvalidRequest, Overloaded, Unavailable
from services.common.grpc_errors import abort
from services.common.grpc_options import SERVER_OPTIONS
from services.common.server_config import ServerConfig
from services.common.trust import server_credentials
from tests.fakes.stack import until
from tests.unit.metrics.test_probe import certificate


class Echo(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Raw bytes both ways. `held`: while set, nothing is read. `seen`: metadata of the last call."""

    def __init__(self) -> None:
        self.held = asyncio.Event()
        self.seen: dict[str, Any] = {}
        self.cancelled = asyncio.Event()

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        behavior = {"/t/Echo": self._echo, "/t/Hold": self._hold, "/t/Refuse": self._refuse, "/t/Flood": self._flood}.get(details.method)
        return grpc.stream_stream_rpc_method_handler(behavior) if behavior else None

    async def _echo(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        self.seen = dict(context.invocation_metadata())
        async for message in requests:
            yield message

    async def _hold(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        try:
            yield b"welcome"
            await self.held.wait()
            async for message in requests:
                yield len(message).to_bytes(4)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def _refuse(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        yield b"first"
        await abort(context, Overloaded("too much, für heute", retry_after_ms=2500))

    async def _flood(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        for _ in range(600):
            yield bytes(100_000)


class Client:
    """A call and what it has received."""

    def __init__(self, connection: Connection, path: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        self.got: list[bytes] = []
        self.call: Call = connection.call(path, headers, self.got.append)

    async def end(self) -> Status:
        async with asyncio.timeout(20):
            return await self.call.ended


@contextlib.asynccontextmanager
async def served(echo: Echo) -> AsyncIterator[tuple[grpc.aio.Server, Connection]]:
    """A server and a connection to it."""
    server = grpc.aio.server(options=list(SERVER_OPTIONS))
    server.add_generic_rpc_handlers((echo,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    connection = await dial(f"127.0.0.1:{port}", None, timeout_s=5)
    try:
        yield server, connection
    finally:
        connection.close()
        await server.stop(None)


async def test_messages_of_every_size_come_back_in_order() -> None:
    sizes = [0, 1, 5, 16_384, 65_535, 65_536, 300_000, 3_000_000, 17]
    messages = [bytes([i]) * size for i, size in enumerate(sizes)]
    echo = Echo()
    async with served(echo) as (_, connection):
        client = Client(connection, "/t/Echo", (("authorization", "Bearer " + "x" * 300),))
        client.call.send(*messages, last=True)
        assert (await client.end()).ok
        assert client.got == messages
        assert echo.seen["authorization"] == "Bearer " + "x" * 300


async def test_many_calls_share_a_connection() -> None:
    async with served(Echo()) as (_, connection):
        clients = [Client(connection, "/t/Echo") for _ in range(50)]
        for i, client in enumerate(clients):
            client.call.send(b"%d" % i * 1000, last=True)
        assert all([(await client.end()).ok for client in clients])
        assert [client.got for client in clients] == [[b"%d" % i * 1000] for i in range(50)]


async def test_a_peer_that_does_not_read_makes_the_call_unwritable_and_later_writable_again() -> None:
    echo = Echo()
    async with served(echo) as (_, connection):
        client = Client(connection, "/t/Hold")
        await until(lambda: client.got)
        woken: list[bool] = []
        client.call.on_writable = lambda: woken.append(client.call.writable)
        client.call.send(bytes(40_000_000))
        assert not client.call.writable
        await asyncio.sleep(0.1)
        assert not client.call.writable and not woken
        echo.held.set()
        await until(lambda: woken, 20)
        assert all(woken)
        await until(lambda: len(client.got) == 2, 20)
        assert int.from_bytes(client.got[1]) == 40_000_000


async def test_more_than_the_window_can_be_received() -> None:
    async with served(Echo()) as (_, connection):
        client = Client(connection, "/t/Flood")
        client.call.send(last=True)
        assert (await client.end()).ok
        assert sum(map(len, client.got)) == 60_000_000


async def test_a_status_comes_with_its_details() -> None:
    async with served(Echo()) as (_, connection):
        client = Client(connection, "/t/Refuse")
        error = (await client.end()).error()
        assert isinstance(error, Overloaded)
        assert (error.message, error.retry_after_ms) == ("too much, für heute", 2500)
        assert client.got == [b"first"]
        unknown = (await Client(connection, "/t/Nothing").end()).error()
        assert unknown.grpc_code == 13


async def test_a_cancelled_call_ends_once_and_the_server_hears_of_it() -> None:
    echo = Echo()
    async with served(echo) as (_, connection):
        client = Client(connection, "/t/Hold")
        await until(lambda: client.got)
        client.call.cancel()
        client.call.cancel()
        assert (await client.end()).code == 1
        async with asyncio.timeout(5):
            await echo.cancelled.wait()
        after = Client(connection, "/t/Echo")
        after.call.send(b"still there", last=True)
        assert (await after.end()).ok


async def test_a_server_that_leaves_ends_every_call_as_unavailable() -> None:
    async with served(Echo()) as (server, connection):
        clients = [Client(connection, "/t/Hold") for _ in range(3)]
        await until(lambda: all(client.got for client in clients))
        await server.stop(None)
        for client in clients:
            assert isinstance((await client.end()).error(), Unavailable)
        await until(lambda: not connection.alive)
        assert isinstance((await Client(connection, "/t/Echo").end()).error(), Unavailable)


async def test_nobody_there() -> None:
    with pytest.raises(Unavailable, match="no connection to"):
        await dial("127.0.0.1:1", None, timeout_s=5)


async def test_unary_calls_share_a_connection_that_is_made_again_when_it_is_lost() -> None:
    echo = Echo()
    server = grpc.aio.server(options=list(SERVER_OPTIONS))
    server.add_generic_rpc_handlers((echo,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = Channel(f"dns:///localhost:{port}", None)
    answers = await asyncio.gather(*(channel.call("/t/Echo", b"%d" % i, (("x-n", str(i)),), 5.0) for i in range(20)))
    assert answers == [b"%d" % i for i in range(20)]
    with pytest.raises(Overloaded):
        await channel.call("/t/Refuse", b"", (), 5.0)
    with pytest.raises(DeadlineExceeded):
        await channel.call("/t/Hold", b"", (), 0.1)
    async with asyncio.timeout(5):
        await echo.cancelled.wait()
    await server.stop(None)
    with pytest.raises(Unavailable):
        await channel.call("/t/Echo", b"", (), 5.0)
    again = grpc.aio.server(options=list(SERVER_OPTIONS))
    again.add_generic_rpc_handlers((echo,))
    again.add_insecure_port(f"127.0.0.1:{port}")
    await again.start()
    assert await channel.call("/t/Echo", b"back", (), 5.0) == b"back"
    await channel.close()
    await again.stop(None)


@pytest.mark.parametrize(("name", "welcome"), [("inside", True), ("elsewhere", False)])
async def test_both_ends_prove_who_they_are(tmp_path: Path, name: str, welcome: bool) -> None:
    trust = dataclasses.replace(ServerConfig(), **cast(Any, certificate(tmp_path)))
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Echo(),))
    credentials = server_credentials(trust)
    assert credentials is not None
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        connecting = dial(f"127.0.0.1:{port}", dataclasses.replace(trust, tls_server_name=name), timeout_s=5)
        if not welcome:
            with pytest.raises(Unavailable, match="certificate"):
                await connecting
            return
        connection = await connecting
        client = Client(connection, "/t/Echo")
        client.call.send(b"sealed", last=True)
        assert (await client.end()).ok and client.got == [b"sealed"]
        connection.close()
    finally:
        await server.stop(None)


class Wire(asyncio.Transport):
    """What a connection writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = False

    def write(self, data: Any) -> None:
        if self.closed:
            raise RuntimeError("the handler is closed")
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is buffered here."""

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


def _wired() -> tuple[Connection, Wire]:
    connection, wire = Connection("x", "http"), Wire()
    connection.connection_made(wire)
    return connection, wire


def _frame(kind: int, stream: int, payload: bytes, flags: int = 0) -> bytes:
    """A frame as it is on the wire, however wrong."""
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM = ACK = 1
END_HEADERS, PADDED = 4, 8


def _block(*pairs: tuple[str, str]) -> bytes:
    return Encoder().encode(pairs)


OPENED = _frame(HEADERS, 1, _block((":status", "200")), END_HEADERS)
ABC = b"\0" + (3).to_bytes(4) + b"abc"


@pytest.mark.parametrize(
    "sent",
    [
        OPENED + _frame(DATA, 1, bytes(2 << 20)),
        _frame(WINDOW_UPDATE, 1, b"xx"),
        OPENED + _frame(DATA, 1, b"\xff", PADDED),
        _frame(DATA, 1, ABC),
        _frame(HEADERS, 1, b"\xff\xff\xff", END_HEADERS),
        _frame(HEADERS, 1, _block((":status", "200"), ("name", "x" * 70_000)), END_HEADERS),
        OPENED + _frame(HEADERS, 1, b"\x00\x04name\x02\xff\xfe", END_HEADERS | END_STREAM),
        _frame(CONTINUATION, 1, b""),
        _frame(HEADERS, 1, b"\x88") + _frame(DATA, 1, b""),
        _frame(SETTINGS, 0, b"xxxxx"),
        _frame(WINDOW_UPDATE, 1, (0).to_bytes(4)),
        _frame(WINDOW_UPDATE, 1, (0x7FFFFFFF).to_bytes(4)),
        _frame(RST_STREAM, 1, b"xxxxx"),
        _frame(HEADERS, 3, _block((":status", "200")), END_HEADERS),
        _frame(HEADERS, 2, _block((":status", "200")), END_HEADERS),
        OPENED + OPENED,
        OPENED + _frame(HEADERS, 1, b"\x88") + _frame(PING, 0, bytes(8)),
        _frame(HEADERS, 1, b"\x88") + _frame(CONTINUATION, 3, b"\x88", END_HEADERS),
        _frame(HEADERS, 1, b"\x88") + 70 * _frame(CONTINUATION, 1, b"\x88" * 1000),
        _frame(5, 1, (2).to_bytes(4) + b"\x88", END_HEADERS),
    ],
)
async def test_a_peer_that_breaks_the_protocol_is_left(sent: bytes) -> None:
    connection, wire = _wired()
    client = Client(connection, "/t/Echo")
    connection.data_received(sent)
    assert wire.closed and not connection.alive
    assert isinstance((await client.end()).error(), Unavailable)


FRAMES = st.tuples(st.integers(0, 10), st.integers(0, 4), st.binary(max_size=12), st.integers(0, 255))


@settings(max_examples=50)
@given(st.lists(FRAMES, max_size=8), st.binary(max_size=20))
async def test_whatever_a_peer_sends_is_taken_or_ends_the_connection(sent: list[tuple[int, int, bytes, int]], tail: bytes) -> None:
    connection, wire = _wired()
    client = Client(connection, "/t/Echo")
    for kind, stream, payload, flags in sent:
        if connection.alive:
            connection.data_received(_frame(kind, stream, payload, flags))
    if connection.alive:
        connection.data_received(tail)
    client.call.send(b"more")
    connection.close()
    assert wire.closed and client.call.ended.done()


async def test_frames_may_arrive_byte_by_byte() -> None:
    connection, _ = _wired()
    client = Client(connection, "/t/Echo")
    trailers = _block(("grpc-status", "3"), ("grpc-message", "no%20good"))
    sent = OPENED + _frame(DATA, 1, ABC[:2]) + _frame(DATA, 1, ABC[2:])
    sent += _frame(HEADERS, 1, trailers[:1], END_STREAM) + _frame(CONTINUATION, 1, trailers[1:], END_HEADERS)
    for at in range(len(sent)):
        connection.data_received(sent[at : at + 1])
    assert client.got == [b"abc"]
    error = (await client.end()).error()
    assert isinstance(error, InvalidRequest) and error.message == "no good"


async def test_a_ping_is_answered() -> None:
    connection, wire = _wired()
    wire.written.clear()
    connection.data_received(_frame(PING, 0, b"12345678"))
    assert bytes(wire.written) == _frame(PING, 0, b"12345678", ACK)


async def test_a_transport_that_closes_before_the_loop_says_so_is_not_written_to() -> None:
    connection, wire = _wired()
    call = connection.call("/t/Echo", (), lambda message: None)
    wire.close()
    connection._keep_alive()  # the timer's turn
    connection.reset(call, ErrorCodes.CANCEL)
    connection.flush()
    connection.close()
    assert not connection.alive


async def test_a_compressed_message_is_refused() -> None:
    connection, _ = _wired()
    client = Client(connection, "/t/Echo")
    connection.data_received(OPENED + _frame(DATA, 1, b"\1" + (1).to_bytes(4) + b"x"))
    assert (await client.end()).code == 13 and client.got == []


async def test_calls_the_peer_has_seen_outlive_its_goaway() -> None:
    connection, wire = _wired()
    seen, unseen = Client(connection, "/t/Echo"), Client(connection, "/t/Echo")
    await asyncio.sleep(0)
    wire.written.clear()
    leaving = _frame(GOAWAY, 0, (1).to_bytes(4) + (0).to_bytes(4) + b"bye")
    connection.data_received(leaving + _frame(PING, 0, b"12345678") + OPENED + _frame(DATA, 1, ABC))
    assert wire.written.endswith(_frame(PING, 0, b"12345678", ACK))
    assert isinstance((await unseen.end()).error(), Unavailable)
    assert isinstance((await Client(connection, "/t/Echo").end()).error(), Unavailable)
    wire.written.clear()
    seen.call.send(b"more", last=True)
    assert wire.written == _frame(DATA, 1, b"\0" + (4).to_bytes(4) + b"more", END_STREAM)
    connection.data_received(_frame(HEADERS, 1, _block(("grpc-status", "0")), END_HEADERS | END_STREAM))
    assert (await seen.end()).ok and seen.got == [b"abc"]


async def test_a_server_that_drains_finishes_what_runs() -> None:
    echo = Echo()
    async with served(echo) as (server, connection):
        client = Client(connection, "/t/Hold")
        await until(lambda: client.got)
        stopping = asyncio.create_task(server.stop(10))
        await until(lambda: not connection.alive)
        echo.held.set()
        client.call.send(b"abc", last=True)
        assert (await client.end()).ok
        assert client.got == [b"welcome", (3).to_bytes(4)]
        await stopping


async def test_headers_and_message_leave_together() -> None:
    connection, wire = _wired()
    pieces: list[int] = []
    wire.write = lambda data: pieces.append(len(data))  # type: ignore[method-assign]
    Client(connection, "/t/Echo").call.send(b"abc", last=True)
    await asyncio.sleep(0)
    assert len(pieces) == 1


async def test_room_is_news_only_to_a_call_that_waits_for_it() -> None:
    connection, wire = _wired()
    client = Client(connection, "/t/Echo")
    woken: list[bool] = []
    client.call.on_writable = lambda: woken.append(True)
    more = _frame(WINDOW_UPDATE, 1, (50_000).to_bytes(4)) + _frame(WINDOW_UPDATE, 0, (50_000).to_bytes(4))
    connection.data_received(more)
    assert not woken
    client.call.send(bytes(150_000))
    assert not client.call.writable
    connection.data_received(more)
    assert woken == [True] and client.call.writable
    connection.pause_writing()
    assert not client.call.writable
    connection.resume_writing()
    assert len(woken) == 2
    assert len(wire.written) > 150_000


def test_header_blocks_are_known_only_while_the_table_stays_as_it_is() -> None:
    encoder, reader, plain = Encoder(), HeaderReader(1 << 16), Decoder()
    for value in ("one", "one", "one", "two", "one", "x" * 5000, "one", "two", "three", "one"):
        pairs: list[tuple[str, str]] = [(":status", "200"), ("name", value)]
        for _ in range(2):
            block = encoder.encode(pairs)
            assert reader.read(block) == [(str(name), str(value)) for name, value in plain.decode(block)] == pairs


@given(st.lists(st.tuples(st.text("abc-", min_size=1), st.text(max_size=300)), max_size=6), st.integers(0, 3))
def test_headers_are_spelled_as_any_peer_reads_them(pairs: list[tuple[str, str]], fixed: int) -> None:
    speller, decoder = HeaderSpeller(), Decoder()
    decoder.max_allowed_table_size = 0  # as of a peer that keeps no table
    for _ in range(2):
        block = speller.spell(tuple(pairs[:fixed]), pairs[fixed:])
        assert [(str(name), str(value)) for name, value in decoder.decode(block)] == pairs


async def test_settings_that_come_late_change_the_room_of_calls_that_run() -> None:
    connection, wire = _wired()
    client = Client(connection, "/t/Echo")
    client.call.send(bytes(100_000))
    assert not client.call.writable
    wire.written.clear()
    connection.data_received(_frame(WINDOW_UPDATE, 0, (1 << 20).to_bytes(4)))
    assert not wire.written
    connection.data_received(_frame(SETTINGS, 0, (4).to_bytes(2) + (200_000).to_bytes(4)))
    assert client.call.writable and len(wire.written) > 100_005 - 65_535
    connection.data_received(_frame(SETTINGS, 0, (4).to_bytes(2) + (10).to_bytes(4)))
    wire.written.clear()
    client.call.send(b"x")
    assert not client.call.writable and not wire.written


async def test_a_peer_that_wants_few_calls_at_once_gets_no_more() -> None:
    connection, _ = _wired()
    connection.data_received(_frame(SETTINGS, 0, (3).to_bytes(2) + (1).to_bytes(4)))
    first, second = Client(connection, "/t/Echo"), Client(connection, "/t/Echo")
    assert isinstance((await second.end()).error(), Unavailable)
    first.call.cancel()
    assert connection.alive and not Client(connection, "/t/Echo").call.ended.done()


async def test_what_comes_for_a_call_that_has_ended_harms_nobody() -> None:
    connection, wire = _wired()
    gone, stays = Client(connection, "/t/Echo"), Client(connection, "/t/Echo")
    gone.call.cancel()
    wire.written.clear()
    trailers = _frame(HEADERS, 1, _block(("grpc-status", "0")), END_HEADERS | END_STREAM)
    connection.data_received(OPENED + _frame(DATA, 1, ABC) + _frame(WINDOW_UPDATE, 1, (5).to_bytes(4)) + trailers)
    connection.data_received(_frame(RST_STREAM, 1, (8).to_bytes(4)))
    assert connection.alive and not gone.got and not stays.call.ended.done()


async def test_data_with_padding_and_the_end_of_a_stream() -> None:
    connection, _ = _wired()
    client = Client(connection, "/t/Echo")
    connection.data_received(OPENED + _frame(DATA, 1, b"\x03" + ABC + b"\0\0\0", PADDED | END_STREAM))
    assert client.got == [b"abc"]
    assert (await client.end()).code == 2


async def test_a_reset_tells_why() -> None:
    connection, _ = _wired()
    client = Client(connection, "/t/Echo")
    connection.data_received(_frame(RST_STREAM, 1, (7).to_bytes(4)))
    assert (await client.end()).code == 14


async def test_what_is_read_is_given_back_to_the_peers_window() -> None:
    connection, wire = _wired()
    client = Client(connection, "/t/Echo")
    connection.data_received(OPENED)
    wire.written.clear()
    size = 1 << 20
    frames = 40
    for _ in range(frames):
        connection.data_received(_frame(DATA, 1, b"\0" + (size - 5).to_bytes(4) + bytes(size - 5)))
    assert len(client.got) == frames
    given_back = {0: 0, 1: 0}
    for at in range(0, len(wire.written), 13):
        assert wire.written[at : at + 5] == b"\0\0\4\x08\0"
        given_back[int.from_bytes(wire.written[at + 5 : at + 9])] += int.from_bytes(wire.written[at + 9 : at + 13])
    assert all(frames * size - (4 << 20) < back <= frames * size for back in given_back.values())
