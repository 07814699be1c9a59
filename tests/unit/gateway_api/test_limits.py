"""Limits of the gateway itself, and what must hold across them."""

from __future__ import annotations

import asyncio
import json

from protos.scheduler.v1 import scheduler_pb2 as pb
from tests.fakes.script import Emit, Finish, Refuse, Script
from tests.fakes.stack import Stack, running, until


async def test_a_full_queue_answers_at_once_with_retry_after() -> None:
    async with running(max_concurrent_requests=1, queue_size=2) as stack:
        stack.worker.pace_s = 0.05

        async def ask() -> tuple[int, str | None]:
            async with stack.http.post(stack.url + "/v1/completions", json={"prompt": "x", "max_tokens": 8}) as answer:
                await answer.read()
                return answer.status, answer.headers.get("retry-after")

        answers = await asyncio.gather(*(ask() for _ in range(10)))
        assert [status for status, _ in answers].count(200) == 3
        assert all(wait is not None and int(wait) >= 1 for status, wait in answers if status == 429)
        assert {status for status, _ in answers} == {200, 429}


async def test_a_request_that_waits_too_long_is_429() -> None:
    async with running(max_concurrent_requests=1, queue_timeout_secs=0.2) as stack:
        stack.worker.pace_s = 0.05
        long = asyncio.create_task(stack.post("/v1/completions", {"prompt": "x", "max_tokens": 30}))
        await until(lambda: stack.worker.runs)
        status, answer = await stack.post("/v1/completions", {"prompt": "y"})
        assert (status, answer["error"]["code"]) == (429, "queue_full")
        assert (await long)[0] == 200


async def test_more_requests_than_the_rate_are_429() -> None:
    async with running(rate_limit_tokens_per_second=0.01, rate_limit_burst=2.0) as stack:
        asks = [stack.post("/v1/completions", {"prompt": "x", "max_tokens": 1}) for _ in range(4)]
        answers = await asyncio.gather(*asks)
        assert sorted(status for status, _ in answers) == [200, 200, 429, 429]
        refused = next(answer for status, answer in answers if status == 429)
        assert (refused["error"]["code"], refused["error"]["type"]) == ("rate_limit_exceeded", "rate_limit_error")


async def test_the_usage_chunk_survives_a_retry_and_comes_once() -> None:
    from services.common.errors import Unavailable

    async with running(2) as stack:

        def script(submit: pb.Submit) -> Script:
            return [Refuse(Unavailable("down"))] if submit.attempt == 1 else [Emit([97]), Emit([98]), Finish("LENGTH")]

        for worker in stack.workers:
            worker.script = script
        body = {"prompt": "x", "stream": True, "stream_options": {"include_usage": True}}
        events = [json.loads(e) for e in (await stack.events("/v1/completions", body))[:-1]]
        assert [e["usage"] for e in events if e["usage"]] == [events[-1]["usage"]]
        assert (events[-1]["choices"], events[-1]["usage"]["completion_tokens"]) == ([], 2)


async def test_client_errors_say_nothing_about_workers(stack: Stack) -> None:
    for _ in range(20):
        await stack.post("/v1/completions", {"prompt": ""})
        await stack.post("/v1/completions", {"prompt": "x" * 5000})
    [worker] = stack.app.parts.registry.workers()
    assert (worker.breaker.state.value, worker.state.value) == ("closed", "ready")


async def test_gauges_fall_back_to_zero_when_everybody_leaves() -> None:
    async with running(metrics_on_main_port=True) as stack:
        stack.worker.pace_s = 0.05
        asks = [asyncio.create_task(stack.post("/generate", {"text": "x", "sampling_params": {"max_new_tokens": 900}})) for _ in range(20)]
        await until(lambda: stack.worker.running == 20, 20)
        for ask in asks:
            ask.cancel()
        await until(lambda: stack.worker.running == 0)
        await until(lambda: stack.app.parts.doors.pipeline.active == 0)
        async with stack.http.get(stack.url + "/metrics") as answer:
            lines = (await answer.text()).splitlines()
        in_flight = [line for line in lines if line.startswith(("headrace_requests_in_flight", "headrace_routed_requests_in_flight{"))]
        assert all(float(line.rsplit(" ", 1)[1]) == 0 for line in in_flight)


async def test_huge_batches_are_refused_quickly_and_a_large_one_works(stack: Stack) -> None:
    status, answer = await stack.post("/v1/completions", {"prompt": ["x"] * 50_000})
    assert (status, answer["error"]["param"]) == (400, "prompt")
    assert "1024" in answer["error"]["message"]
    status, answer = await stack.post("/v1/completions", {"prompt": ["x" * 2000] * 64, "max_tokens": 1})
    assert status == 200
    assert len(answer["choices"]) == 64
    for path, body in (("/v1/completions", {"prompt": "x", "echo": True, "logprobs": 100_000}), ("/generate", {"text": ["x"] * 5000})):
        assert (await stack.post(path, body))[0] == 400


async def test_draining_finishes_what_runs_and_takes_nothing_new(stack: Stack) -> None:
    stack.worker.pace_s = 0.03
    running_one = asyncio.create_task(stack.post("/v1/completions", {"prompt": "x", "max_tokens": 20}))
    await until(lambda: stack.worker.runs)
    draining = asyncio.create_task(stack.app.drain())
    await asyncio.sleep(0.05)
    async with stack.http.post(stack.url + "/v1/completions", json={"prompt": "y"}) as answer:
        assert answer.status == 503
        assert "retry-after" in answer.headers
    assert (await stack.get("/ready"))[0] == 503
    assert not draining.done()
    assert (await running_one)[0] == 200
    await draining


async def test_keys_can_keep_caches_apart() -> None:
    async with running(cache_isolation="api-key", api_key="secret") as stack:
        await stack.post("/v1/completions", {"prompt": "x", "max_tokens": 1}, headers={"authorization": "Bearer secret"})
        assert stack.worker.submits[0].prompt.cache_salt.startswith(b"key:")
        assert b"secret" not in stack.worker.submits[0].prompt.cache_salt
        assert stack.worker.submits[0].tenant


async def test_sampling_defaults_come_from_the_model_unless_openais_are_wanted() -> None:
    for wanted, temperature in (("model", 0.6), ("openai", 1.0)):
        stack = Stack(sampling_defaults=wanted)
        stack.tokenizer.generation_defaults = {"do_sample": True, "temperature": 0.6, "top_k": 0}
        await stack.start()
        await stack.post("/v1/completions", {"prompt": "x", "max_tokens": 1})
        sampling = stack.worker.submits[0].sampling
        assert abs(sampling.temperature - temperature) < 1e-6
        assert sampling.top_k == -1
        await stack.stop()
