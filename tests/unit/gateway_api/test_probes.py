"""Probes observe: they ask nobody, or leave nothing behind, and change nothing."""

from __future__ import annotations

import asyncio

import pytest

from gateway.api import probes
from tests.fakes.script import Emit, Finish, Silence
from tests.fakes.stack import Stack, running, until


async def test_deep_probes_that_time_out_leave_nothing_and_change_nothing(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "_DEEP_TIMEOUT_S", 0.03)
    stack.worker.script = lambda submit: [Silence()]
    for _ in range(30):
        status, answer = await stack.get("/health_generate")
        assert (status, answer["status"]) == (503, "failed")
    assert len(stack.worker.runs) == 30
    parts = stack.app.parts
    await until(lambda: all(run.cancelled.is_set() for run in stack.worker.runs))
    await until(lambda: not any(session.open_texts for session in parts.text.sessions))
    assert parts.doors.pipeline.active == 0
    [worker] = parts.registry.workers()
    assert (worker.in_flight.requests, worker.breaker.state.value, worker.state.value) == (0, "closed", "ready")
    assert [(await stack.get(path))[0] for path in ("/health", "/ready")] == [200, 200]
    stack.worker.script = lambda submit: [Emit([97]), Finish("LENGTH")]
    monkeypatch.setattr(probes, "_DEEP_TIMEOUT_S", 5.0)
    assert (await stack.get("/health_generate"))[0] == 200


async def test_whoever_stops_waiting_for_a_deep_probe_does_not_end_it_for_the_others(stack: Stack) -> None:
    stack.worker.pace_s = 0.2
    impatient = asyncio.create_task(stack.get("/health_generate"))
    await until(lambda: stack.worker.runs)
    patient = asyncio.create_task(stack.get("/health_generate"))
    impatient.cancel()
    assert (await patient)[0] == 200
    assert len(stack.worker.runs) == 1


async def test_a_busy_fleet_is_alive_and_ready_and_makes_no_work_of_it() -> None:
    async with running(max_concurrent_requests=1, queue_size=1) as stack:
        stack.worker.script = lambda submit: [Emit([97]), Silence()]
        asks = [asyncio.create_task(stack.post("/v1/completions", {"prompt": "x"})) for _ in range(2)]
        await until(lambda: stack.app.parts.doors.pipeline.active == 2 and stack.worker.runs)
        for _ in range(20):
            assert [(await stack.get(path))[0] for path in ("/health", "/liveness", "/ready", "/readiness")] == [200] * 4
        assert len(stack.worker.runs) == 1
        status, answer = await stack.get("/health_generate")
        assert (status, answer["status"]) == (503, "failed"), "overload is what a deep probe may tell a person"
        for ask in asks:
            ask.cancel()
        await asyncio.gather(*asks, return_exceptions=True)
