"""A small client of the scheduler's contract that checks the Session's promises as it reads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from protos.scheduler.v1 import cache_events_pb2_grpc, scheduler_pb2_grpc
from protos.scheduler.v1 import scheduler_pb2 as pb
from services.common.channel import open_channel
from services.common.grpc_options import MAX_FRAME_BYTES
from services.common.version import PROTOCOL
from tests.integration.programs import Program, running


def submit(handle: int = 0, ids: list[int] | None = None, max_new: int = 8, **fields: Any) -> pb.Submit:
    """A greedy request of one choice over the prompt `ids`; `fields` replace parts of it."""
    ids = ids if ids is not None else [11, 12, 13]
    parts: dict[str, Any] = {
        "request_id": f"r{handle}",
        "prompt": pb.Prompt(token_ids=ids, total_tokens=len(ids)),
        "choices": [pb.Choice(seed=handle)],
        "sampling": pb.Sampling(temperature=0.0),
        "stops": pb.Stops(max_new_tokens=max_new),
    }
    return pb.Submit(handle_base=handle, **(parts | fields))


class Row:
    """What was said about one handle."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.first: int | None = None
        self.ids: list[int] = []
        self.final: pb.Final | None = None
        self.prompt_logprobs: list[float] = []

    @property
    def ended(self) -> pb.Final:
        """The final, which must be there."""
        assert self.final is not None
        return self.final


class WorkerSession:
    """Reads frames and fails on a broken promise: order, gaps, duplicates, frame size, words after the final."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self.rows: dict[int, Row] = {}
        self.frames = 0
        self.heartbeats: list[int] = []
        self.draining = False
        self._seq = 0

    async def send(self, **parts: Any) -> None:
        await self._call.write(pb.ToWorker(**parts))

    async def read(self) -> pb.FromWorker | None:
        """The next frame, checked and noted; None at the end of the stream."""
        frame = await self._call.read()
        if frame is grpc.aio.EOF:  # type: ignore[attr-defined]
            return None
        assert isinstance(frame, pb.FromWorker)
        assert frame.ByteSize() <= MAX_FRAME_BYTES
        assert frame.seq == self._seq + 1
        self._seq = frame.seq
        self.frames += 1
        self._note(frame)
        return frame

    async def until_final(self, *handles: int) -> None:
        while not all(handle in self.rows and self.rows[handle].final is not None for handle in handles):
            assert await self.read() is not None, "the stream ended early"

    async def until_tokens(self, handle: int, count: int) -> None:
        while handle not in self.rows or len(self.rows[handle].ids) < count:
            assert await self.read() is not None, "the stream ended early"

    def _note(self, frame: pb.FromWorker) -> None:
        for accepted in frame.accepted:
            self._say(accepted.handle, "accepted", after=())
        for started in frame.started:
            self._say(started.handle, "started", after=("accepted",))
        for part in frame.prompt_logprobs:
            self._say(part.handle, "prompt", after=("accepted", "started", "prompt", "step"))
            self.rows[part.handle].prompt_logprobs.extend(part.logprobs.chosen)
        offset = 0
        for handle, first, count in zip(frame.step.handle, frame.step.first_position, frame.step.count, strict=True):
            row = self._say(handle, "step", after=("started", "prompt", "step"))
            row.first = first if row.first is None else row.first
            assert first == row.first + len(row.ids), "a gap or a repetition"
            row.ids.extend(frame.step.token_ids[offset : offset + count])
            offset += count
        assert offset == len(frame.step.token_ids)
        for final in frame.final:
            self._say(final.handle, "final", after=("", "accepted", "started", "prompt", "step")).final = final
        if frame.notice.HasField("heartbeat"):
            self.heartbeats.append(frame.notice.heartbeat.last_turn_age_ms)
        self.draining = self.draining or frame.notice.HasField("draining")

    def _say(self, handle: int, what: str, after: tuple[str, ...]) -> Row:
        row = self.rows.setdefault(handle, Row())
        last = row.said[-1] if row.said else ""
        assert last in after or (last == "" and not after), f"handle {handle}: {what} after {last!r}"
        row.said.append(what)
        return row


class Worker:
    """Stubs of one running worker."""

    def __init__(self, program: Program, channel: grpc.aio.Channel) -> None:
        self.program = program
        self.channel = channel
        self.scheduler: Any = scheduler_pb2_grpc.SchedulerStub(channel)  # type: ignore[no-untyped-call]
        self.admin: Any = scheduler_pb2_grpc.SchedulerAdminStub(channel)  # type: ignore[no-untyped-call]
        self.cache: Any = cache_events_pb2_grpc.CacheEventsStub(channel)  # type: ignore[no-untyped-call]

    async def loaded(self) -> None:
        """Wait until the model is there."""
        while True:
            try:
                await self.scheduler.GetLoad(pb.GetLoadRequest(), wait_for_ready=True)
                return
            except grpc.aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.UNAVAILABLE, error

    @asynccontextmanager
    async def session(self) -> AsyncIterator[WorkerSession]:
        """A greeted Session."""
        call = self.scheduler.Session()
        session = WorkerSession(call)
        await session.send(hello=pb.Hello(protocol=PROTOCOL))
        welcome = await session.read()
        assert welcome is not None and welcome.HasField("welcome")
        try:
            yield session
        finally:
            call.cancel()

    async def load(self) -> pb.Load:
        answer: pb.GetLoadResponse = await self.scheduler.GetLoad(pb.GetLoadRequest())
        return answer.load

    async def until_idle(self) -> pb.Load:
        """The load once nothing runs or waits."""
        while True:
            load = await self.load()
            if not load.running and not load.waiting and not load.kv_used_tokens:
                return load
            await asyncio.sleep(0.01)


@asynccontextmanager
async def worker(*arguments: str) -> AsyncIterator[Worker]:
    """A worker process with these flags, loaded."""
    with running("services.scheduler", *arguments) as program:
        channel = open_channel(program.address)
        try:
            found = Worker(program, channel)
            await found.loaded()
            yield found
        finally:
            await channel.close(None)


@asynccontextmanager
async def scripted(folder: Path, script: dict[str, Any] | None = None, *arguments: str) -> AsyncIterator[Worker]:
    """A worker that plays `script`."""
    path = folder / "script.json"
    path.write_text(json.dumps(script or {}))
    async with worker("--load-format", "scripted", "--script", str(path), *arguments) as found:
        yield found
