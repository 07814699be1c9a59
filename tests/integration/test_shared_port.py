"""Two gateway processes behind one port, with real services: they are one gateway to whoever asks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from tests.fleet.fleet import Fleet, Member
from tests.helm.scripted import write_model

LIMIT = 4


@contextlib.asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[Fleet]:
    """A fleet of one worker with a second gateway on the first one's port."""
    settings = write_model(folder / "model", step_ms=5.0)
    settings["gateway"] = {"shared_port": "true", "processes": 2, "max_concurrent_requests": LIMIT, "metrics_on_main_port": "true"}
    fleet = Fleet(folder, settings, workers=1)
    second = Member("second", "gateway", fleet.gateway.flags, folder, port=fleet.gateway.port)
    async with fleet.running():
        try:
            second.start()
            yield fleet
        finally:
            second.stop()


async def connect(url: str, stack: contextlib.AsyncExitStack) -> list[aiohttp.ClientSession]:
    """One kept connection to each of the two processes, which the kernel chooses among by itself."""
    found: dict[int, aiohttp.ClientSession] = {}
    async with asyncio.timeout(60):
        while len(found) < 2:
            session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)))
            async with session.get(f"{url}/ready") as ready:
                is_ready = ready.status == 200
                await ready.read()
            async with session.get(f"{url}/workers") as answer:
                process = (await answer.json())["gateway_process_id"]
            if is_ready and process not in found:
                found[process] = session
            else:
                await session.close()
                await asyncio.sleep(0.05)
    return list(found.values())


async def metrics(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(f"{url}/metrics") as answer:
        return await answer.text()


def value(text: str, name: str) -> float:
    """Of the family's only series."""
    (found,) = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
    return float(found)


async def finish_of_stream(session: aiohttp.ClientSession, url: str, rid: str, begun: asyncio.Event) -> dict[str, Any]:
    """The finish reason of a long native stream."""
    body = {"rid": rid, "text": "go", "stream": True, "sampling_params": {"max_new_tokens": 8000, "ignore_eos": True}}
    last: dict[str, Any] = {}
    async with session.post(f"{url}/generate", json=body) as answer:
        assert answer.status == 200, await answer.text()
        async for line in answer.content:
            if line.startswith(b"data: {"):
                last = json.loads(line[6:])
                begun.set()
    assert "meta_info" in last, last
    finish: dict[str, Any] = last["meta_info"]["finish_reason"]
    return finish


async def test_two_processes_behind_one_port_are_one_gateway(tmp_path: Path) -> None:
    async with pair(tmp_path) as fleet, contextlib.AsyncExitStack() as stack:
        url = fleet.url
        one, two = await connect(url, stack)

        for session in (one, two):
            async with session.post(f"{url}/workers", json={"url": "127.0.0.1:1"}) as answer:
                assert (answer.status, (await answer.json())["error"]["code"]) == (409, "shared_port")
            async with session.post(f"{url}/generate", json={"text": "a", "sampling_params": {"max_new_tokens": 3}}) as answer:
                assert answer.status == 200

        processes: list[str] = []
        for session in (one, two):
            text = await metrics(session, url)
            processes += set(re.findall(r'process="(\d+)"', text))
            assert all('process="' in line for line in text.splitlines() if line.startswith("headrace_"))
            assert value(text, "headrace_limit") == LIMIT // 2
        assert len(set(processes)) == len(processes) == 2

        begun = asyncio.Event()
        running = asyncio.create_task(finish_of_stream(one, url, "mine", begun))
        await begun.wait()
        async with two.post(f"{url}/abort_request", json={"rid": "mine"}) as answer:
            assert await answer.json() == {"aborted": 1}, "the other process found it through the worker"
        assert (await running)["type"] == "abort"
        async with two.post(f"{url}/abort_request", json={"rid": "mine"}) as answer:
            assert await answer.json() == {"aborted": 0}
