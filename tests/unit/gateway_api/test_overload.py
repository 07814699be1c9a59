"""More requests than may run: who goes first, who is sent away and with what words, through the doors."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fakes.script import Emit, Finish, Wait
from tests.fakes.stack import Stack, running, until

Ask = tuple[str, dict[str, Any], dict[str, str]]


async def order_of(stack: Stack, asks: Sequence[Ask]) -> tuple[list[str], list[int]]:
    """Prompts in the order in which the worker got them, and every status. The first ask holds the only place until all have come."""
    tasks, all_here = [], asyncio.Event()
    stack.worker.script = lambda submit: [Wait(event=all_here), Emit([97]), Finish("LENGTH")]
    for number, (prompt, body, headers) in enumerate(asks):
        tasks.append(asyncio.create_task(stack.post("/v1/completions", {"prompt": prompt, "max_tokens": 2, **body}, headers=headers)))
        await until(lambda count=number + 1: stack.app.parts.doors.pipeline.active == count)
    all_here.set()
    statuses = [status for status, _ in await asyncio.gather(*tasks)]
    return [bytes(submit.prompt.token_ids).decode() for submit in stack.worker.submits], statuses


async def test_the_more_urgent_go_first() -> None:
    async with running(max_concurrent_requests=1) as stack:
        asks: list[Ask] = [
            ("first", {}, {}),
            ("low", {"priority": -5}, {}),
            ("plain", {}, {}),
            ("high", {"priority": 5}, {}),
            ("later", {}, {}),
        ]
        order, statuses = await order_of(stack, asks)
        assert order == ["first", "high", "plain", "later", "low"]
        assert set(statuses) == {200}


async def test_keys_take_turns_however_many_requests_each_has(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("greedy\nmodest\n")
    async with running(max_concurrent_requests=1, api_key_file=str(keys)) as stack:
        greedy, modest = ({"authorization": f"Bearer {name}"} for name in ("greedy", "modest"))
        asks: Sequence[Ask] = [*((f"g{i}", {}, greedy) for i in range(6)), *((f"m{i}", {}, modest) for i in range(2))]
        order, statuses = await order_of(stack, asks)
        assert set(statuses) == {200}
        assert {"m0", "m1"} <= set(order[:5]), order


async def test_overload_is_told_at_once_and_no_worker_is_blamed() -> None:
    async with running(2, max_concurrent_requests=4, queue_size=4, cb_failure_threshold=2) as stack:
        refused = asyncio.Event()
        for worker in stack.workers:
            worker.script = lambda submit: [Wait(event=refused), Emit([97]), Finish("LENGTH")]
        statuses: Counter[int] = Counter()

        async def ask() -> None:
            async with stack.http.post(stack.url + "/v1/completions", json={"prompt": "x", "max_tokens": 5}) as answer:
                body = await answer.json()
                statuses[answer.status] += 1
                if answer.status == 429:
                    assert int(answer.headers["retry-after"]) >= 1
                    assert body["error"]["code"] == "queue_full"

        asks = asyncio.gather(*(ask() for _ in range(40)))
        await until(lambda: statuses[429] == 32)
        refused.set()
        await asks
        assert statuses == {200: 8, 429: 32}
        for known in stack.app.parts.registry.workers():
            assert (known.breaker.state.value, known.state.value) == ("closed", "ready")
        assert (await stack.post("/v1/completions", {"prompt": "x", "max_tokens": 1}))[0] == 200
