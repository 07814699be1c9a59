"""500 requests of every kind at concurrency 64: one terminal event each, and the pool is whole afterwards."""

from __future__ import annotations

import asyncio
import collections
import json
import random
from typing import Any

import httpx

from tests.e2e.launched import Suite, launched

REQUESTS, CONCURRENCY = 500, 64


def _body(draw: random.Random, number: int) -> dict[str, Any]:
    sampling: dict[str, Any] = {"max_new_tokens": draw.randint(1, 48), "temperature": draw.choice([0, 0.8]), "seed": number}
    if draw.random() < 0.3:
        sampling["stop"] = [draw.choice([" the", ".", "\n", " and"])]
    if draw.random() < 0.3:
        sampling["ignore_eos"] = True
    ids = draw.choices(range(100, 40_000), k=draw.randint(1, 150))
    return {"rid": f"request-{number}", "input_ids": ids, "sampling_params": sampling, "stream": draw.random() < 0.6}


async def _whole(client: httpx.AsyncClient, body: dict[str, Any]) -> str:
    reply = await client.post("/generate", json=body)
    assert reply.status_code == 200, reply.text
    return str(reply.json()["meta_info"]["finish_reason"]["type"])


async def _streamed(client: httpx.AsyncClient, body: dict[str, Any], leave_after: int | None) -> str:
    """How the stream ended; exactly one event carries a finish reason, and [DONE] is the last."""
    finishes: list[str] = []
    events = 0
    async with client.stream("POST", "/generate", json=body) as reply:
        assert reply.status_code == 200
        async for line in reply.aiter_lines():
            if not line.startswith("data: "):
                continue
            if line == "data: [DONE]":
                assert len(finishes) == 1
                return finishes[0]
            event = json.loads(line[6:])
            if event["meta_info"]["finish_reason"] is not None:
                finishes.append(str(event["meta_info"]["finish_reason"]["type"]))
            events += 1
            if leave_after is not None and events >= leave_after and not finishes:
                return "left"
    raise AssertionError("the stream ended without [DONE]")


async def _one(client: httpx.AsyncClient, draw: random.Random, number: int) -> str:
    body = _body(draw, number)
    fate = draw.random()
    if fate < 0.15:
        body["sampling_params"].update(max_new_tokens=400, ignore_eos=True)
        body["sampling_params"].pop("stop", None)
        work = asyncio.ensure_future(_streamed(client, {**body, "stream": True}, None))
        await asyncio.sleep(draw.random())
        await client.post("/abort_request", json={"rid": body["rid"]})
        return await work
    if body["stream"]:
        return await _streamed(client, body, draw.randint(1, 5) if fate < 0.4 else None)
    if fate < 0.25:
        try:
            return await asyncio.wait_for(_whole(client, body), draw.random() * 0.5)
        except TimeoutError:
            return "left"
    return await _whole(client, body)


async def _all(suite: Suite) -> collections.Counter[str]:
    gate = asyncio.Semaphore(CONCURRENCY)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=suite.url, timeout=180, limits=limits) as client:

        async def guarded(number: int) -> str:
            async with gate:
                return await _one(client, random.Random(number), number)

        return collections.Counter(await asyncio.gather(*(guarded(i) for i in range(REQUESTS))))


def test_every_request_ends_once_and_the_pool_is_whole() -> None:
    with launched("--max-total-tokens", "16384") as suite:
        ends = asyncio.run(_all(suite))
        load = suite.wait_idle()
        assert ends.total() == REQUESTS
        assert set(ends) <= {"stop", "length", "abort", "left"}
        assert min(ends["stop"], ends["length"], ends["abort"], ends["left"]) > 0
        assert load["kv_used_tokens"] == 0
        assert suite.client.post("/flush_cache").status_code == 200
        assert suite.loads()["kv_evictable_tokens"] == 0
        assert suite.generate(text="Hello", sampling_params={"max_new_tokens": 2})["meta_info"]["completion_tokens"] <= 2
