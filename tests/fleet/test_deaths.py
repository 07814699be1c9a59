"""Three workers, one tokenizer, one detokenizer: whatever dies, no client notices, and every text is the undisturbed one.

The workers play a script whose ids depend on all that their cache slots hold, so a wrong resume changes the text.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fleet.fleet import Fleet, Member
from tests.fleet.streams import Load, Told, ask, verdict
from tests.helm.scripted import write_model

pytestmark = pytest.mark.slow

TOKENS = 120
PROMPTS = tuple(f"Tell me story number {i} " + "and then " * (i % 9) for i in range(24))


def fleet_of(folder: Path, **more: dict[str, Any]) -> Fleet:
    """`more`: flags by kind of program."""
    settings = write_model(folder / "model", step_ms=6.0, playbacks=[])
    return Fleet(folder, {kind: {**flags, **more.get(kind, {})} for kind, flags in settings.items()})


async def hurt(fleet: Fleet, victim: Member, *, down_s: float = 0.3) -> None:
    """Kill it, and start it again a moment later, as whatever supervises it would."""
    victim.kill()
    await asyncio.sleep(down_s)
    victim.start()
    await fleet.until_ready()


async def under_load(load: Load, disturb: Coroutine[Any, Any, None]) -> list[Told]:
    until = asyncio.Event()
    running = asyncio.create_task(load.run(until))
    await asyncio.sleep(1.0)
    try:
        await disturb
    finally:
        until.set()
        told = await running
    return told


async def test_each_kind_of_program_dies_in_turn_under_64_streams(tmp_path: Path) -> None:
    async with fleet_of(tmp_path).running() as fleet:
        load = Load(fleet.url, 64, TOKENS, PROMPTS)
        reference = await load.reference()

        async def disturb() -> None:
            for victim in (fleet.workers[0], fleet.workers[1], fleet.detokenizer, fleet.tokenizer):
                await hurt(fleet, victim)
                await asyncio.sleep(2.5)

        told = await under_load(load, disturb())
        assert verdict(told, reference) == []
        assert len(told) > 64
        assert sum(one.resumes for one in told) > 0, "the deaths must have hit running streams"


async def test_random_deaths(tmp_path: Path) -> None:
    rng = random.Random(3)
    async with fleet_of(tmp_path).running() as fleet:
        load = Load(fleet.url, 48, TOKENS, PROMPTS)
        reference = await load.reference()

        async def disturb() -> None:
            for _ in range(5):
                await hurt(fleet, rng.choice([*fleet.workers, fleet.detokenizer, fleet.tokenizer]), down_s=rng.uniform(0.0, 1.0))
                await asyncio.sleep(2.5)

        told = await under_load(load, disturb())
        assert verdict(told, reference) == []


async def test_a_rolling_restart_fails_nothing(tmp_path: Path) -> None:
    async with fleet_of(tmp_path).running() as fleet:
        load = Load(fleet.url, 48, TOKENS, PROMPTS)
        reference = await load.reference()
        codes: list[int] = []

        async def disturb() -> None:
            for worker in fleet.workers:
                codes.append(await worker.restart_gently())
                await fleet.until_ready()

        told = await under_load(load, disturb())
        assert verdict(told, reference) == []
        assert codes == [0, 0, 0]


async def test_workers_that_leave_before_their_streams_have_ended(tmp_path: Path) -> None:
    """Drained past their time: what was left goes on elsewhere, which is nobody's fault and may happen often."""
    async with fleet_of(tmp_path, worker={"drain_timeout": 0.3}).running() as fleet:
        load = Load(fleet.url, 32, 5 * TOKENS, PROMPTS)
        reference = await load.reference()

        async def disturb() -> None:
            for worker in fleet.workers:
                await worker.restart_gently()
                await fleet.until_ready()

        told = await under_load(load, disturb())
        assert verdict(told, reference) == []
        assert sum(one.resumes for one in told) > 0


async def test_a_worker_that_stands_still(tmp_path: Path) -> None:
    """It holds its connections and says nothing: its streams go on elsewhere, and it may come back."""
    async with fleet_of(tmp_path, gateway={"worker_stall_secs": 6.0}).running() as fleet:
        load = Load(fleet.url, 32, TOKENS, PROMPTS)
        reference = await load.reference()
        frozen = fleet.workers[0].process
        assert frozen is not None

        async def disturb() -> None:
            frozen.send_signal(signal.SIGSTOP)
            await asyncio.sleep(10)
            frozen.send_signal(signal.SIGCONT)
            await fleet.until_ready()

        told = await under_load(load, disturb())
        assert verdict(told, reference) == []
        assert sum(one.resumes for one in told) > 0


async def test_a_request_that_kills_workers_takes_two_of_three_and_is_named(tmp_path: Path) -> None:
    async with fleet_of(tmp_path).running() as fleet, aiohttp.ClientSession() as session:
        killer = asyncio.create_task(ask(session, fleet.url, "the poisoned prompt", 2000))
        victims: list[str] = []
        for _ in range(2):
            victims.append(await busy(fleet, session, victims))
            fleet.member_at(victims[-1]).kill()
        told = await asyncio.wait_for(killer, 20)
        assert "was in 2 workers when they died" in told.wrong, told
        assert sum(worker.process is not None and worker.process.poll() is None for worker in fleet.workers) == 1
        assert "request killed workers request_id=" in fleet.gateway.log
        after = await ask(session, fleet.url, PROMPTS[0], 20)
        assert after.wrong == ""


async def busy(fleet: Fleet, session: aiohttp.ClientSession, but: list[str]) -> str:
    """Address of the worker that runs the one request, once its first tokens must have come."""
    async with asyncio.timeout(10):
        while True:
            for worker in await fleet.shown(session):
                if worker["in_flight"] and worker["load"]["running"] and worker["id"] not in but:
                    await asyncio.sleep(0.2)
                    return str(worker["id"])
            await asyncio.sleep(0.05)


async def test_two_workers_at_once(tmp_path: Path) -> None:
    """Both die in one moment: each request has lost one worker only."""
    async with fleet_of(tmp_path).running() as fleet:
        load = Load(fleet.url, 32, TOKENS, PROMPTS)
        reference = await load.reference()

        async def disturb() -> None:
            for worker in fleet.workers[:2]:
                worker.kill()
            await asyncio.sleep(3)
            for worker in fleet.workers[:2]:
                worker.start()
            await fleet.until_ready()

        told = await under_load(load, disturb())
        assert verdict(told, reference) == []
