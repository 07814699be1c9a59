"""What a newcomer does first: many streams at once against a suite with every setting at its default."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp

from tests.fleet.fleet import Fleet
from tests.fleet.streams import ask
from tests.helm.scripted import write_model


async def test_three_hundred_streams_at_once_are_all_served(tmp_path: Path) -> None:
    async with Fleet(tmp_path, write_model(tmp_path / "model", step_ms=2.0), workers=1).running() as fleet:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            told = await asyncio.gather(*(ask(session, fleet.url, f"number {i}", 8) for i in range(300)))
        assert [one.wrong for one in told if one.wrong] == []
