"""The same with three workers that compute: kill any of them and every text, greedy or seeded, is the undisturbed one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headrace.models.resolve import resolve
from headrace.models.store import ModelStore
from services.common.config import cache_dir
from tests.fleet.fleet import Fleet, Member
from tests.fleet.streams import Load, verdict

pytestmark = [pytest.mark.model, pytest.mark.slow]

MODEL = "smollm2-135m-instruct"
TOKENS = 48
PROMPTS = tuple(
    f"{opening} {thing}"
    for thing in ("the sea", "a mill", "two rivers", "an old clock", "winter", "my garden")
    for opening in ("Write a short story about", "Explain to a child what makes", "Once upon a time there was")
)


def settings() -> dict[str, dict[str, Any]]:
    """Flags by kind of program."""
    folder = resolve(MODEL, ModelStore(cache_dir()), lambda _: None).folder
    text = {"model_path": folder}
    return {"tokenizer": text, "detokenizer": text, "worker": {**text, "cpu_threads": 1, "max_total_tokens": 16384}, "gateway": {}}


async def test_every_text_survives_the_deaths_of_workers_and_detokenizer(tmp_path: Path) -> None:
    async with Fleet(tmp_path, settings()).running(180) as fleet:
        load = Load(fleet.url, 64, TOKENS, PROMPTS)
        reference = await load.reference()
        assert len(set(reference.values())) == len(PROMPTS), "different prompts, different texts"
        until = asyncio.Event()
        running = asyncio.create_task(load.run(until))
        await asyncio.sleep(2)
        try:
            await kill_in_turn(fleet, [fleet.workers[0], fleet.detokenizer, fleet.workers[1], fleet.tokenizer])
        finally:
            until.set()
            told = await running
        assert verdict(told, reference) == []
        assert sum(one.resumes for one in told) > 0


async def kill_in_turn(fleet: Fleet, victims: list[Member]) -> None:
    """Each victim dies and comes back; requests it had must have ended before the next one dies."""
    for victim in victims:
        victim.kill()
        await asyncio.sleep(0.3)
        victim.start()
        await fleet.until_ready(90)
        await asyncio.sleep(8)
