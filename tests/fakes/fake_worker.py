"""A worker that speaks the scheduler's contract and plays scripts: it counts what it is asked and answers what it is told."""

from __future__ import annotations

import asyncio
import functools
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio  # type: ignore[attr-defined]

from protos.scheduler.v1 import scheduler_pb2 as pb
from protos.scheduler.v1 import scheduler_pb2_grpc as pb_grpc
from services.common.version import PROTOCOL
from tests.fakes import byte_vocabulary as vocabulary
from tests.fakes.script import Die, Emit, Finish, Logprobs, Refuse, Script, Silence, Wait, story

SERVICE = "headrace.scheduler.v1.Scheduler"


@dataclass
class Run:
    """One submitted request."""

    submit: pb.Submit
    prompt: list[int]
    positions: list[int]
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    cause: int = 0


class _Broken(Exception):
    """The script wants the Session to break."""


class FakeWorker(pb_grpc.SchedulerServicer):
    """`tokens`: the vocabulary's digest. `script`: what to do with a submit. By default its story, with `pace_s` between tokens."""

    def __init__(
        self,
        model: str = "fake",
        *,
        context: int = 4096,
        pool: int = 65_536,
        digest: str = "model-digest",
        tokens: str = vocabulary.DIGEST,
    ) -> None:
        self.model = model
        self.context = context
        self.pool = pool
        self.digest = digest
        self.vocabulary_digest = tokens
        self.pace_s = 0.0
        self.script: Callable[[pb.Submit], Script | None] = lambda submit: None
        self.runs: list[Run] = []
        self.aborts: list[str] = []
        self.loads = 0
        self.sessions = 0
        self.server: grpc.aio.Server | None = None
        self.address = ""
        self._out: set[asyncio.Queue[pb.FromWorker | None]] = set()

    @property
    def submits(self) -> list[pb.Submit]:
        """All submits so far."""
        return [run.submit for run in self.runs]

    @property
    def running(self) -> int:
        """Requests that have neither ended nor been cancelled."""
        return sum(1 for run in self.runs if run.positions and not run.cancelled.is_set())

    async def start(self, port: int = 0) -> str:
        """Serve; returns the address."""
        self.server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        self.boot_id = uuid.uuid4().hex
        pb_grpc.add_SchedulerServicer_to_server(self, self.server)  # type: ignore[no-untyped-call]
        health = health_aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(health, self.server)
        await health.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
        self.health = health
        self.port = self.server.add_insecure_port(f"127.0.0.1:{port}")
        self.address = f"127.0.0.1:{self.port}"
        await self.server.start()
        return self.address

    async def stop(self) -> None:
        """Die at once."""
        if self.server is not None:
            await self.server.stop(None)
            self.server = None

    def announce_drain(self) -> None:
        """Tell every Session that this worker leaves."""
        for queue in self._out:
            queue.put_nowait(pb.FromWorker(notice=pb.Notice(draining=pb.Draining(remaining_ms=1000))))

    async def Session(self, request_iterator: AsyncIterator[pb.ToWorker], context: Any) -> AsyncIterator[pb.FromWorker]:
        self.sessions += 1
        out: asyncio.Queue[pb.FromWorker | None] = asyncio.Queue()
        self._out.add(out)
        reader = asyncio.create_task(self._read(request_iterator, out))
        try:
            yield pb.FromWorker(welcome=self._welcome())
            while (frame := await out.get()) is not None:
                yield frame
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the fake worker died")
        finally:
            self._out.discard(out)
            reader.cancel()

    def _welcome(self) -> pb.Welcome:
        return pb.Welcome(
            protocol=PROTOCOL,
            boot_id=self.boot_id,
            model_digest=self.digest,
            tokenizer_digest=self.vocabulary_digest,
            weight_version="v1",
            block_size=16,
            context_tokens=self.context,
            model=self.model,
            vocab_size=vocabulary.VOCAB,
            pool_tokens=self.pool,
        )

    async def _read(self, frames: AsyncIterator[pb.ToWorker], out: asyncio.Queue[pb.FromWorker | None]) -> None:
        by_handle: dict[int, Run] = {}

        def over(run: Run, task: asyncio.Task[None]) -> None:
            playing.discard(task)
            for handle in self._handles(run):
                by_handle.pop(handle, None)

        playing: set[asyncio.Task[None]] = set()
        waiting: dict[int, Run] = {}
        try:
            async for frame in frames:
                for submit in frame.submit:
                    run = Run(submit, list(submit.prompt.token_ids), [len(c.prior_output_ids) for c in submit.choices])
                    self.runs.append(run)
                    by_handle.update({submit.handle_base + i: run for i in range(len(submit.choices))})
                    waiting[submit.handle_base] = run
                for part in frame.prompt:
                    waiting[part.handle_base].prompt.extend(part.token_ids)
                for base in [b for b, run in waiting.items() if len(run.prompt) >= run.submit.prompt.total_tokens]:
                    task = asyncio.create_task(self._play(waiting[base], out))
                    playing.add(task)
                    task.add_done_callback(functools.partial(over, waiting.pop(base)))
                for cancel in frame.cancel:
                    if (ended := by_handle.get(cancel.handle)) is not None:
                        ended.cause = cancel.cause
                        ended.cancelled.set()
        finally:
            for task in playing:
                task.cancel()

    def _script(self, run: Run) -> Script:
        own = self.script(run.submit)
        if own is not None:
            return own
        limit = run.submit.stops.max_new_tokens
        script: list[Any] = []
        for token in story(run.prompt, limit):
            script.append(Emit([token]))
            if self.pace_s:
                script.append(Wait(self.pace_s))
        return [*script, Finish("LENGTH")]

    async def _play(self, run: Run, out: asyncio.Queue[pb.FromWorker | None]) -> None:
        handles = self._handles(run)
        script = self._script(run)
        if not isinstance(script[0], Refuse):
            cached = pb.TierTokens(device=3)
            started = [pb.Started(handle=h, prompt_tokens=len(run.prompt), cached=cached, queue_ns=1000) for h in handles]
            out.put_nowait(pb.FromWorker(accepted=[pb.Accepted(handle=h) for h in handles], started=started))
        skip = list(run.positions)
        try:
            for action in script:
                if run.cancelled.is_set():
                    break
                if not await self._act(action, run, skip, out):
                    return
            if run.cancelled.is_set():
                self._finish(run, Finish("ABORT"), out)
        except _Broken:
            out.put_nowait(None)

    def _handles(self, run: Run) -> list[int]:
        return [run.submit.handle_base + i for i in range(len(run.submit.choices))]

    async def _act(self, action: Any, run: Run, skip: list[int], out: asyncio.Queue[pb.FromWorker | None]) -> bool:
        """False once the request is over. Tokens a choice has from before are not emitted again."""
        if isinstance(action, Emit | Logprobs):
            self._emit(action, run, skip, out)
        elif isinstance(action, Wait):
            await self._wait(action, run)
        elif isinstance(action, Finish):
            self._finish(run, action, out)
            return False
        elif isinstance(action, Refuse):
            for handle in self._handles(run):
                final = pb.Final(handle=handle, reason=pb.FINISH_REASON_ERROR, error=action.error.to_proto())
                out.put_nowait(pb.FromWorker(final=[final]))
            run.positions.clear()
            return False
        elif isinstance(action, Die):
            raise _Broken
        elif isinstance(action, Silence):
            await asyncio.Event().wait()
        return True

    async def _wait(self, action: Wait, run: Run) -> None:
        if action.event is not None:
            await action.event.wait()
            return
        try:
            async with asyncio.timeout(action.seconds):
                await run.cancelled.wait()
        except TimeoutError:
            return

    def _emit(self, action: Emit | Logprobs, run: Run, skip: list[int], out: asyncio.Queue[pb.FromWorker | None]) -> None:
        step = self._step(action, run, skip)
        if step.handle:
            out.put_nowait(pb.FromWorker(step=step))

    def _step(self, action: Emit | Logprobs, run: Run, skip: list[int]) -> pb.Step:
        ids = list(action.ids) if isinstance(action, Emit) else [action.token]
        step = pb.Step()
        for row, handle in enumerate(self._handles(run)):
            passed = min(skip[row], len(ids))
            skip[row] -= passed
            new = ids[passed:]
            if not new:
                continue
            step.handle.append(handle)
            step.first_position.append(run.positions[row])
            step.count.append(len(new))
            step.token_ids.extend(new)
            run.positions[row] += len(new)
            if isinstance(action, Logprobs):
                step.logprobs.row.append(len(step.handle) - 1)
                step.logprobs.chosen.append(action.chosen)
                step.logprobs.top_count.append(len(action.top))
                step.logprobs.top_ids.extend(token for token, _ in action.top)
                step.logprobs.top.extend(value for _, value in action.top)
        return step

    def _finish(self, run: Run, action: Finish, out: asyncio.Queue[pb.FromWorker | None]) -> None:
        step = self._step(Emit(action.last), run, [0] * len(run.positions)) if action.last else pb.Step()
        frame = pb.FromWorker(step=step)
        for row, handle in enumerate(self._handles(run)):
            final = pb.Final(
                handle=handle,
                reason=f"FINISH_REASON_{action.reason}",
                end_position=run.positions[row],
                usage=pb.Usage(prompt_tokens=len(run.prompt), completion_tokens=run.positions[row], cached=pb.TierTokens(device=3)),
            )
            for name in ("token_id", "stop_index", "keep_bytes"):
                if getattr(action, name) is not None:
                    setattr(final, name, getattr(action, name))
            frame.final.append(final)
        out.put_nowait(frame)
        run.positions.clear()

    async def Abort(self, request: pb.AbortRequest, context: Any) -> pb.AbortResponse:
        self.aborts.append(request.request_id)
        return pb.AbortResponse(aborted=0)

    async def GetLoad(self, request: pb.GetLoadRequest, context: Any) -> pb.GetLoadResponse:
        self.loads += 1
        return pb.GetLoadResponse(load=pb.Load(running=self.running, waiting=0, kv_total_tokens=self.pool))

    async def GetModelInfo(self, request: pb.GetModelInfoRequest, context: Any) -> pb.GetModelInfoResponse:
        return pb.GetModelInfoResponse(model=self.model, context_tokens=self.context)

    async def GetServerInfo(self, request: pb.GetServerInfoRequest, context: Any) -> pb.GetServerInfoResponse:
        return pb.GetServerInfoResponse(version="fake", boot_id=self.boot_id, report="fake report")
