"""Clients that leave: after thousands of them the gateway is as it was."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from collections import Counter
from pathlib import Path

from gateway.flight.choice import Choice
from gateway.flight.flight import Flight, Silent
from gateway.flight.spec import GenerateSpec, IdsPrompt, Stops
from gateway.resilience.admission import UNLIMITED
from gateway.workers.lease import Lease
from protos.scheduler.v1 import scheduler_pb2 as pb
from tests.fakes.fake_worker import FakeWorker
from tests.fakes.script import Emit, Script, Wait
from tests.fakes.stack import Stack, running, until

BATCH = 200
WARM_UP, BATCHES = 3, 10
GROWTH_BYTES = 6 << 20  # 1,400 streams; 20,000 of them with real programs: benchmarks/cancelled_streams.py


def endless(submit: pb.Submit) -> Script:
    """Two tokens, and then the client's end."""
    return [Emit([97]), Emit([98]), Wait(3600.0)]


def alive() -> Counter[str]:
    """What belongs to single requests, by kind."""
    gc.collect()
    kinds = (Flight, Choice, Lease)
    return Counter(type(thing).__name__ for thing in gc.get_objects() if isinstance(thing, kinds))


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def cancelled_batch(stack: Stack, first: int) -> None:
    """A batch that is cancelled in every stage: before it runs, while it is sent, in mid-stream."""
    pipeline = stack.app.parts.doors.pipeline
    flights = [
        Flight(GenerateSpec(f"r{first + i}", "fake", IdsPrompt((7, first + i & 255)), stops=Stops(max_new_tokens=500)), Silent())
        for i in range(BATCH)
    ]
    tasks = [asyncio.create_task(pipeline.run(flight)) for flight in flights]
    for task in tasks[: BATCH // 4]:
        task.cancel()
    await asyncio.sleep(0)
    for task in tasks[BATCH // 4 : BATCH // 2]:
        task.cancel()
    await until(lambda: all(len(flight.choices[0].output_ids) == 2 for flight in flights[BATCH // 2 :]), 30)
    for task in tasks:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(end, asyncio.CancelledError) for end in ends)


async def settle(stack: Stack) -> None:
    """The worker has heard of every end; its own records are dropped."""
    worker = stack.worker
    await until(lambda: all(run.cancelled.is_set() for run in worker.runs), 30)
    await until(lambda: not any(session.open_texts for session in stack.app.parts.text.sessions), 30)
    worker.runs.clear()


async def test_two_thousand_cancelled_streams_leave_nothing() -> None:
    async with running([FakeWorker()], max_concurrent_requests=BATCH) as stack:
        stack.worker.script = endless
        parts = stack.app.parts
        for number in range(WARM_UP):
            await cancelled_batch(stack, number * BATCH)
            await settle(stack)
        tasks, things, resident = len(asyncio.all_tasks()), alive(), resident_bytes()
        for number in range(WARM_UP, BATCHES):
            await cancelled_batch(stack, number * BATCH)
            await settle(stack)
            (worker,) = parts.registry.workers()
            assert (worker.in_flight.requests, worker.in_flight.prefill_tokens) == (0, 0)
            assert parts.doors.pipeline.active == 0
            assert parts.doors.pipeline.active_by_model() == {}
            gate = parts.doors.pipeline._stages.admission.snapshot()["fake"]
            assert (gate["running"], gate["waiting"], gate["shed"]) == (0, 0, 0)
            assert gate["limit"] == BATCH < UNLIMITED
            assert [session.in_flight for session in parts.pool.sessions()] == [0]
        await until(lambda: len(asyncio.all_tasks()) <= tasks, 30)
        assert alive() <= things, "flights, choices, leases"
        assert resident_bytes() - resident < GROWTH_BYTES
        assert worker.breaker.state.value == "closed"
        status, answer = await stack.get("/health")
        assert status == 200, answer


async def test_clients_that_hang_up_leave_nothing() -> None:
    body = {"prompt": "x", "max_tokens": 500, "stream": True}
    async with running([FakeWorker()]) as stack:
        stack.worker.script = endless
        pipeline = stack.app.parts.doors.pipeline

        async def client() -> None:
            with contextlib.suppress(asyncio.CancelledError):
                async with stack.http.post(stack.url + "/v1/completions", json=body) as answer:
                    await answer.content.readline()
                    await asyncio.Event().wait()

        async def hung_up() -> None:
            clients = [asyncio.create_task(client()) for _ in range(50)]
            await until(lambda: pipeline.active == 50, 30)
            for one in clients:
                one.cancel()
            await asyncio.gather(*clients)
            await until(lambda: pipeline.active == 0, 30)
            await settle(stack)

        await hung_up()
        tasks = len(asyncio.all_tasks())
        for _ in range(4):
            await hung_up()
        await until(lambda: len(asyncio.all_tasks()) <= tasks, 30)
        await until(lambda: alive()["Flight"] <= 1, 30)  # the last exception that was handled may hold the one it passed through
        assert stack.app.parts.registry.workers()[0].in_flight.requests == 0
