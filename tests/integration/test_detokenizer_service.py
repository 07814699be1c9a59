"""The detokenizer program over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tokenizers import Tokenizer

from protos.detokenizer.v1 import detokenizer_pb2 as pb
from protos.detokenizer.v1 import detokenizer_pb2_grpc as pb_grpc
from services.common.version import PROTOCOL
from tests.integration.programs import Program, run_to_end, running
from tests.unit.text.tokenizers_fixture import specs, write_folder

SERVICE = "headrace.detokenizer.v1.Detokenizer"
HELLO = pb.ToDetok(hello=pb.Hello(protocol=PROTOCOL))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("model"), specs()["byte_level"])


@pytest.fixture(scope="module")
def program(folder: Path) -> Iterator[Program]:
    with running("services.detokenizer", "--model-path", str(folder), "--max-states", "4", "--max-backlog-bytes", "100000") as started:
        yield started


@pytest.fixture(scope="module")
def library(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


@asynccontextmanager
async def _stub(program: Program) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(program.address) as channel:
        await channel.channel_ready()
        yield pb_grpc.DetokenizerStub(channel)  # type: ignore[no-untyped-call]


async def _session(stub: Any) -> Any:
    call = stub.Session()
    await call.write(HELLO)
    welcome = await call.read()
    assert welcome.welcome.protocol == PROTOCOL
    return call


async def _rest(call: Any) -> list[pb.FromDetok]:
    frames = []
    while isinstance(frame := await call.read(), pb.FromDetok):
        frames.append(frame)
    return frames


def _texts(frames: list[pb.FromDetok]) -> dict[int, str]:
    texts: dict[int, str] = {}
    for frame in frames:
        for handle, piece in zip(frame.text.handle, frame.text.piece, strict=True):
            texts[handle] = texts.get(handle, "") + piece
        for closed in frame.closed:
            texts[closed.handle] = texts.get(closed.handle, "") + closed.tail
    return texts


def _tokens(handle: int, first: int, ids: list[int]) -> pb.ToDetok:
    return pb.ToDetok(tokens=pb.Tokens(handle=[handle], first_position=[first], count=[len(ids)], token_ids=ids))


def _close(handle: int, **fields: Any) -> pb.ToDetok:
    return pb.ToDetok(close=[pb.Close(handle=handle, flush=True, **fields)])


async def test_a_text_token_by_token_with_a_stop(program: Program, library: Tokenizer) -> None:
    text = "naïve 🐈‍⬛ 東京 👩🏽‍🚀 END!"
    ids = library.encode(text).ids
    async with _stub(program) as stub:
        call = await _session(stub)
        await call.write(pb.ToDetok(open=[pb.Open(handle=1, stop_strings=["END"], context_ids=ids[:1])]))
        for position, token_id in enumerate(ids[:-1]):
            await call.write(_tokens(1, position, [token_id]))
        await call.write(_close(1, keep_bytes=len(text.encode()) - 4))
        await call.done_writing()
        frames = await _rest(call)
    assert _texts(frames) == {1: text[:-4]}
    assert not any("\ufffd" in piece for frame in frames for piece in frame.text.piece)
    ends = [end for frame in frames for end in frame.text.end_byte]
    assert ends == sorted(ends)
    assert [frame.seq for frame in frames] == list(range(1, len(frames) + 1))
    assert [closed.total_bytes for frame in frames for closed in frame.closed] == [len(text.encode()) - 4]


async def test_a_second_session_goes_on_where_the_first_was(program: Program, library: Tokenizer) -> None:
    text = "one 東京 two"
    ids = library.encode(text).ids
    async with _stub(program) as stub:
        first = await _session(stub)
        await first.write(pb.ToDetok(open=[pb.Open(handle=1, context_ids=ids[:1])]))
        await first.write(_tokens(1, 0, ids[:5]))
        got = await first.read()
        first.cancel()
        second = await _session(stub)
        seen = got.text.end_byte[0]
        reopened = pb.Open(handle=9, context_ids=ids[:1], prior_output_ids=ids[:3], total_prior_tokens=6, delivered_bytes=seen)
        await second.write(pb.ToDetok(open=[reopened], open_part=[pb.OpenPart(handle=9, offset=3, prior_output_ids=ids[3:6])]))
        await second.write(_tokens(9, 6, ids[6:]))
        await second.write(_close(9))
        await second.done_writing()
        assert got.text.piece[0] + _texts(await _rest(second))[9] == text


async def test_the_limit_fails_only_what_is_beyond_it(program: Program) -> None:
    async with _stub(program) as stub:
        call = await _session(stub)
        await call.write(pb.ToDetok(open=[pb.Open(handle=handle) for handle in range(1, 7)]))
        await call.write(pb.ToDetok(close=[pb.Close(handle=handle, flush=True) for handle in range(1, 7)]))
        await call.done_writing()
        frames = await _rest(call)
        failed = {f.handle: f.error for frame in frames for f in frame.failed}
        assert set(failed) == {5, 6}
        assert "--max-states" in failed[5].message
        assert {c.handle for frame in frames for c in frame.closed} == {1, 2, 3, 4}
        info = await stub.GetDetokenizerInfo(pb.GetDetokenizerInfoRequest())
        assert (info.open_states, info.max_states) == (0, 4)


async def test_bad_stops_and_gaps_fail_their_handle(program: Program) -> None:
    async with _stub(program) as stub:
        call = await _session(stub)
        await call.write(pb.ToDetok(open=[pb.Open(handle=1, stop_regexes=["("]), pb.Open(handle=2), pb.Open(handle=3)]))
        await call.write(_tokens(2, 5, [70]))
        await call.write(_tokens(3, 0, [70]))
        await call.write(_close(3))
        await call.done_writing()
        frames = await _rest(call)
    failed = {f.handle: f.error for frame in frames for f in frame.failed}
    assert failed[1].field == "stop_regexes[0]"
    assert failed[1].code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert "gap" in failed[2].message
    assert 3 in _texts(frames)


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([pb.ToDetok(open=[pb.Open(handle=1)])], grpc.StatusCode.INVALID_ARGUMENT),
        ([pb.ToDetok(hello=pb.Hello(protocol=99))], grpc.StatusCode.FAILED_PRECONDITION),
        ([HELLO, pb.ToDetok(open=[pb.Open(handle=1), pb.Open(handle=1)])], grpc.StatusCode.INVALID_ARGUMENT),
        ([HELLO, pb.ToDetok(tokens=pb.Tokens(handle=[1]))], grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
async def test_broken_sessions_end_and_leave_nothing_behind(program: Program, frames: list[pb.ToDetok], code: grpc.StatusCode) -> None:
    async with _stub(program) as stub:
        call = stub.Session(iter(frames))
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            async for _ in call:
                pass
        assert ended.value.code() is code
        info = await stub.GetDetokenizerInfo(pb.GetDetokenizerInfoRequest())
        assert info.open_states == 0


async def test_a_peer_that_does_not_read_gets_merged_text_and_is_ended_in_the_end(program: Program) -> None:
    narrow = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_536))
    async with grpc.aio.insecure_channel(program.address, options=narrow) as channel:
        stub: Any = pb_grpc.DetokenizerStub(channel)  # type: ignore[no-untyped-call]
        call = await _session(stub)
        await call.write(pb.ToDetok(open=[pb.Open(handle=1)]))
        for step in range(500):
            await call.write(_tokens(1, step * 1000, [70] * 1000))
        for _ in range(1000):
            info = await stub.GetDetokenizerInfo(pb.GetDetokenizerInfoRequest())
            if not info.open_states:
                break
        assert info.open_states == 0
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await _rest(call)
    assert ended.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "--max-backlog-bytes" in (ended.value.details() or "")


async def test_whole_sequences_and_pieces(program: Program, library: Tokenizer) -> None:
    ids = library.encode("é<s>").ids
    async with _stub(program) as stub:
        for skip, text in ((True, "é"), (False, "é<s>")):
            reply = await stub.Detokenize(pb.DetokenizeRequest(sequences=[pb.TokenIds(token_ids=ids)], skip_special_tokens=skip))
            assert list(reply.texts) == [text]
        call = await _session(stub)
        await call.write(pb.ToDetok(open=[pb.Open(handle=1, want_pieces=True, skip_special_tokens=True)]))
        await call.write(pb.ToDetok(pieces=[pb.PieceQuery(handle=1, ids=ids, query_id=7)]))
        await call.write(_tokens(1, 0, ids))
        await call.write(_close(1))
        await call.done_writing()
        frames = await _rest(call)
    [answer] = [p for frame in frames for p in frame.pieces]
    assert answer.query_id == 7
    assert b"".join(answer.pieces) == "é<s>".encode()
    assert b"".join(p for frame in frames for entry in frame.text.token_pieces for p in entry.pieces) == "é<s>".encode()
    assert _texts(frames) == {1: "é"}


async def test_drain_keeps_connected_sessions_and_exits_zero(folder: Path, library: Tokenizer) -> None:
    with running("services.detokenizer", "--model-path", str(folder)) as program:
        async with _stub(program) as stub:
            call = await _session(stub)
            await call.write(pb.ToDetok(open=[pb.Open(handle=1)]))
            program.process.terminate()
            notice = await call.read()
            assert notice.notice.HasField("draining")
            ids = library.encode("still here").ids
            await call.write(_tokens(1, 0, ids))
            await call.write(_close(1))
            late = stub.Session()
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await late.read()
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            await call.done_writing()
            assert _texts(await _rest(call)) == {1: "still here"}
        assert program.process.wait(10) == 0


async def test_health_names(program: Program) -> None:
    async with grpc.aio.insecure_channel(program.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", SERVICE):
            reply = await health.Check(health_pb2.HealthCheckRequest(service=name))
            assert reply.status == health_pb2.HealthCheckResponse.SERVING


def test_a_missing_folder_ends_the_program_with_the_reason(tmp_path: Path) -> None:
    ended = run_to_end("services.detokenizer", "--model-path", str(tmp_path / "gone"))
    assert ended.returncode != 0
    assert "gone" in ended.stderr
    ended = run_to_end("services.detokenizer", "--model-path", str(tmp_path))
    assert ended.returncode != 0
    assert "tokenizer.json" in ended.stderr
