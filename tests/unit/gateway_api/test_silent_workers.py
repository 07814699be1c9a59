"""Silence counts from when a word is owed, and who is silent for seconds gets nothing new while others speak."""

from __future__ import annotations

import asyncio

import pytest

from gateway.clients.scheduler import WorkerSession
from gateway.flight.flight import Flight
from tests.fakes.script import Emit, Silence
from tests.fakes.stack import Stack, running, until

ASK = {"prompt": "x", "max_tokens": 3}


async def test_the_first_request_after_a_long_pause_does_not_find_the_worker_dead(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch may look between a submit and the worker's first word about it."""
    original = WorkerSession.submit

    def submit(session: WorkerSession, flight: Flight) -> None:
        original(session, flight)
        session.check_pulse(30.0)

    monkeypatch.setattr(WorkerSession, "submit", submit)
    [session] = stack.app.parts.pool.sessions()
    session.last_frame_at -= 3600
    assert (await stack.post("/v1/completions", ASK))[0] == 200
    assert (stack.worker.sessions, len(stack.worker.submits)) == (1, 1)


async def test_a_silent_worker_gets_nothing_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.clients.worker_pool._SUSPICIOUS_S", 0.3)
    async with running(2) as stack:
        silent, speaking = stack.workers
        silent.script = lambda submit: [Emit([97]), Silence()]
        stuck = asyncio.create_task(stack.post("/v1/completions", {"prompt": "y", "max_tokens": 5}))
        await until(lambda: silent.submits)
        worker = stack.app.parts.registry.find(silent.address)
        await until(lambda: worker.is_silent)
        before = len(speaking.submits)
        answers = [await stack.post("/v1/completions", ASK) for _ in range(6)]
        assert {status for status, _ in answers} == {200}
        assert (len(silent.submits), len(speaking.submits) - before) == (1, 6)
        assert not stuck.done(), "what runs there may still come"
        assert worker.is_ready
        speaking.script = lambda submit: [Emit([97]), Silence()]
        also = asyncio.create_task(stack.post("/v1/completions", ASK))
        await until(lambda: len(speaking.submits) == before + 7)
        await until(lambda: stack.app.parts.registry.find(speaking.address).is_silent)
        silent.script = lambda submit: None
        assert (await stack.post("/v1/completions", ASK))[0] == 200, "where all are silent, any will do"
        for task in (stuck, also):
            task.cancel()
        await asyncio.gather(stuck, also, return_exceptions=True)
