"""What is counted of each request, and when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.fakes.script import Emit, Finish, Refuse, Wait
from tests.fakes.stack import Stack, running, until


def _requests(stack: Stack, outcome: str, door: str, model: str = "") -> float:
    return stack.app.metrics.counter("headrace_requests_total", model_name=model, door=door, outcome=outcome).value


def _firsts(stack: Stack, streaming: str) -> int:
    histogram = stack.app.metrics.histogram("headrace_time_to_first_token_seconds", model_name=stack.worker.model, streaming=streaming)
    return int(histogram.cumulative()[-1][1])


@pytest.mark.parametrize(
    ("path", "door", "body", "outcome"),
    [
        ("/v1/chat/completions", "chat", {"messages": "no list"}, "invalid_request"),
        ("/v1/completions", "completions", {"prompt": "x", "temperature": -1}, "invalid_request"),
        ("/generate", "generate", {"text": "x", "sampling_params": {"n": 0}}, "invalid_request"),
        ("/v1/completions", "completions", {"prompt": "x" * 70_000_000}, "payload_too_large"),
    ],
)
async def test_a_request_refused_while_it_is_read_is_counted(stack: Stack, path: str, door: str, body: Any, outcome: str) -> None:
    status, _ = await stack.post(path, body)
    assert status in (400, 413)
    assert _requests(stack, outcome, door) == 1


async def test_a_request_refused_for_overload_is_counted() -> None:
    async with running(max_concurrent_requests=1, queue_size=0) as stack:
        stack.worker.pace_s = 0.02
        running_one = asyncio.create_task(stack.post("/v1/completions", {"prompt": "x", "max_tokens": 30}))
        await until(lambda: stack.worker.runs)
        status, _ = await stack.post("/v1/completions", {"prompt": "y"})
        assert status == 429
        assert _requests(stack, "overloaded", "completions", stack.worker.model) == 1
        await running_one


@pytest.mark.parametrize("stream", [True, False])
async def test_the_first_token_is_timed_when_it_comes(stack: Stack, stream: bool) -> None:
    more = asyncio.Event()
    stack.worker.script = lambda submit: [Emit([97]), Wait(event=more), Emit([98]), Finish("LENGTH")]
    label = "true" if stream else "false"
    asking = asyncio.create_task(stack.http.post(stack.url + "/v1/completions", json={"prompt": "x", "stream": stream}))
    await until(lambda: _firsts(stack, label) == 1)
    more.set()
    async with await asking as answer:
        await answer.read()
    assert _firsts(stack, label) == 1


async def test_no_token_no_first_token(stack: Stack) -> None:
    from services.common.errors import InvalidRequest

    stack.worker.script = lambda submit: [Refuse(InvalidRequest("no"))]
    assert (await stack.post("/v1/completions", {"prompt": "x"}))[0] == 400
    assert _firsts(stack, "false") == 0
    assert _requests(stack, "invalid_request", "completions", stack.worker.model) == 1
