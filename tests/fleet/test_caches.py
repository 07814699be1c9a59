"""What the gateway believes of the workers' caches is what they hold, after evictions, deaths and a new gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from gateway.clients.cache_events import CacheEventsClient
from tests.fleet.fleet import Fleet
from tests.fleet.streams import Load, verdict
from tests.helm.scripted import write_model

pytestmark = pytest.mark.slow

PROMPTS = tuple(f"Chat {i} is about " + f"matter {i} and then " * (4 + i % 5) for i in range(40))


async def held(address: str) -> int:
    """Blocks in a snapshot of the worker's own."""
    client = CacheEventsClient(address, None, subscriber="test", load_interval_ms=1000)
    blocks: set[int] = set()
    try:
        async for frame in client.subscribe():
            if frame.update is not None and frame.update.snapshot is not None:
                blocks.update(block for part in frame.update.snapshot for block in part.hashes)
                if frame.update.last:
                    break
    finally:
        await client.close()
    return len(blocks)


async def agree(fleet: Fleet) -> list[int]:
    """Blocks per worker, once gateway and workers say the same. They must within seconds of silence."""
    said: list[int] = []
    known: list[int] = []
    async with aiohttp.ClientSession() as session:
        for _ in range(50):
            said = [await held(worker.address) for worker in fleet.workers]
            known = [worker["cache"]["blocks"] for worker in await fleet.shown(session)]
            if said == known:
                return said
            await asyncio.sleep(0.1)
    raise AssertionError(f"workers hold {said} blocks, the gateway believes {known}")


async def test_caches_are_known_exactly(tmp_path: Path) -> None:
    settings = write_model(tmp_path / "model", step_ms=1.0, playbacks=[])
    settings["worker"]["max_total_tokens"] = 2000
    async with Fleet(tmp_path, settings).running() as fleet:
        load = Load(fleet.url, 12, 20, PROMPTS)
        reference = await load.reference()
        assert min(await agree(fleet)) > 0
        until = asyncio.Event()
        running = asyncio.create_task(load.run(until))
        await asyncio.sleep(4)
        fleet.workers[0].kill()
        fleet.workers[0].start()
        await fleet.until_ready()
        until.set()
        assert verdict(await running, reference) == []
        blocks = await agree(fleet)
        assert max(blocks) <= 2000 // 16
        fleet.gateway.kill()
        fleet.gateway.start()
        await fleet.until_ready()
        assert await agree(fleet) == blocks, "a new gateway learns all of it from snapshots"
