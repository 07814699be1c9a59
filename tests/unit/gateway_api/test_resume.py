"""A client sees one stream, whatever dies behind the gateway."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from protos.scheduler.v1 import scheduler_pb2 as pb
from services.common.errors import Internal, InvalidRequest, Overloaded, Unavailable
from tests.fakes.fake_worker import FakeWorker
from tests.fakes.script import Die, Emit, Finish, Refuse, Script, Silence, Wait, say, story
from tests.fakes.stack import Stack, running, until

PROMPT = "tell me"
BODY: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 40, "stream": True}
EXPECTED = bytes(story(list(PROMPT.encode()), 40)).decode()


def tale(submit: pb.Submit, *, dies_after: int = 0, pause_s: float = 0.002, end: Any = None) -> Script:
    """The prompt's story; with `dies_after`, only so many further tokens before `end` (a death by default)."""
    tokens = story(list(submit.prompt.token_ids), submit.stops.max_new_tokens)
    prior = len(submit.choices[0].prior_output_ids)
    script: list[Any] = []
    for position, token in enumerate(tokens):
        if dies_after and position == prior + dies_after:
            return [*script, end or Die()]
        script += [Emit([token]), Wait(pause_s)]
    return [*script, Finish("LENGTH")]


async def read(stack: Stack, body: dict[str, Any] = BODY) -> tuple[str, list[Any]]:
    """Joined text and all parsed events of a completion stream."""
    events = [json.loads(e) for e in (await stack.events("/v1/completions", body))[:-1]]
    return "".join(c["text"] for e in events for c in e.get("choices", [])), events


async def test_a_dead_worker_is_not_noticed() -> None:
    async with running(2) as stack:
        stack.workers[0].script = lambda submit: tale(submit, dies_after=10)
        stack.workers[1].script = lambda submit: tale(submit)
        for _ in range(2):
            text, events = await read(stack)
            assert text == EXPECTED
            assert [e["choices"][0]["finish_reason"] for e in events].count("length") == 1
        resumed = [s for w in stack.workers for s in w.submits if s.choices[0].prior_output_ids]
        assert resumed
        assert all(s.stops.max_new_tokens == 40 for s in resumed)
        assert {s.choices[0].seed for s in resumed} <= {s.choices[0].seed for s in stack.workers[0].submits}


async def test_resumed_requests_wait_for_each_others_prompts_and_not_for_their_answers() -> None:
    body = {**BODY, "max_tokens": 400}
    async with running(2, resume_prefills_per_worker=1) as stack:
        stack.workers[0].script = lambda submit: tale(submit, dies_after=10, pause_s=0.02)
        stack.workers[1].script = lambda submit: tale(submit, pause_s=0.02)
        asking = [asyncio.create_task(read(stack, body)) for _ in range(4)]
        await until(lambda: stack.workers[1].running == 4)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def test_the_native_door_counts_resumes() -> None:
    async with running(2) as stack:
        for worker in stack.workers:
            worker.script = lambda submit: tale(submit, dies_after=0 if submit.choices[0].prior_output_ids else 5)
        _, answer = await stack.post("/generate", {"text": PROMPT, "sampling_params": {"max_new_tokens": 40}})
        assert answer["text"] == EXPECTED
        assert answer["meta_info"]["resumes"] == 1


async def test_only_unfinished_choices_run_again() -> None:
    async with running(2) as stack:

        def script(submit: pb.Submit) -> Script:
            if submit.attempt == 1:
                return [Emit([97]), Die()]
            return say("abc")

        for worker in stack.workers:
            worker.script = script
        _, answer = await stack.post("/v1/completions", {"prompt": "x", "n": 2})
        assert [c["text"] for c in answer["choices"]] == ["abc", "abc"]


async def test_a_request_that_kills_two_workers_is_ended() -> None:
    async with running(3) as stack:
        for worker in stack.workers:
            worker.script = lambda submit: tale(submit, dies_after=3)
        status, answer = await stack.post("/v1/completions", {**BODY, "stream": False})
        assert status == 500
        assert "not passed on" in answer["error"]["message"]
        assert sum(len(worker.runs) for worker in stack.workers) == 2
        events = await stack.events("/v1/completions", BODY)
        assert events[-1] == "[DONE]"
        assert json.loads(events[-2])["error"]["code"] == "killed_workers"


async def test_a_worker_that_gives_requests_up_costs_nothing() -> None:
    async with running(2) as stack:
        for worker in stack.workers:
            worker.script = lambda submit: tale(submit, dies_after=15, end=Finish("INTERRUPTED"))
        text, _ = await read(stack)
        assert text == EXPECTED


async def test_no_more_than_max_resumes() -> None:
    async with running(2, max_resumes=1) as stack:
        for worker in stack.workers:
            worker.script = lambda submit: tale(submit, dies_after=5, end=Finish("INTERRUPTED"))
        events = await stack.events("/v1/completions", BODY)
        assert json.loads(events[-2])["error"]["code"] == "too_many_resumes"


async def test_a_silent_worker_counts_as_dead() -> None:
    async with running(2, worker_stall_secs=0.3) as stack:
        stack.workers[0].script = lambda submit: tale(submit, dies_after=5, end=Silence())
        stack.workers[1].script = lambda submit: tale(submit)
        for _ in range(2):
            assert (await read(stack))[0] == EXPECTED


async def test_a_gateway_that_stood_still_blames_no_worker() -> None:
    """As after a pause of its machine: what it has not heard it has not listened to."""
    async with running(2, worker_stall_secs=0.8) as stack:
        for worker in stack.workers:
            worker.script = lambda submit: tale(submit, pause_s=0.05)
        asking = [asyncio.create_task(read(stack)) for _ in range(4)]
        await until(lambda: sum(worker.running for worker in stack.workers) == 4)
        time.sleep(2.0)  # noqa: ASYNC251 the pause
        assert [text for text, _ in await asyncio.gather(*asking)] == [EXPECTED] * 4
        assert sum(len(worker.submits) for worker in stack.workers) == 4, "nothing was sent twice"


async def test_a_dead_detokenizer_is_not_noticed(stack: Stack) -> None:
    stack.worker.script = lambda submit: tale(submit, pause_s=0.02)
    reading = asyncio.create_task(read(stack))
    await asyncio.sleep(0.25)
    await stack.detokenizer.stop()
    await asyncio.sleep(0.2)
    await stack.detokenizer.start()
    text, _ = await reading
    assert text == EXPECTED
    assert len(stack.worker.runs) == 1


async def test_a_detokenizer_dead_at_the_end_is_waited_for(stack: Stack) -> None:
    stop = asyncio.Event()
    stack.worker.script = lambda submit: [Emit([104, 0xC3]), Wait(event=stop), Emit([0xA9]), Finish("LENGTH")]
    reading = asyncio.create_task(stack.post("/v1/completions", {"prompt": "x"}))
    await until(lambda: stack.worker.runs and stack.worker.runs[0].positions == [2])
    await stack.detokenizer.stop()
    stop.set()
    await asyncio.sleep(0.1)
    assert not reading.done()
    await stack.detokenizer.start()
    _, answer = await reading
    assert answer["choices"][0]["text"] == "hé"


async def test_a_tokenizer_that_starts_again_is_waited_for(stack: Stack) -> None:
    stack.tokenizer.refuse_next = 3
    status, _ = await stack.post("/v1/completions", {"prompt": "x", "max_tokens": 1})
    assert status == 200


async def test_a_worker_that_starts_again_is_waited_for(stack: Stack) -> None:
    worker = stack.worker
    port = worker.port
    await worker.stop()
    await until(lambda: not stack.app.parts.registry.ready())
    asking = asyncio.create_task(stack.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 3}))
    await asyncio.sleep(0.2)
    assert not asking.done()
    await worker.start(port)
    assert (await asking)[0] == 200


async def test_nobody_there_is_503_with_retry_after() -> None:
    async with running(hold_secs=0.2) as stack:
        await stack.worker.stop()
        await until(lambda: not stack.app.parts.registry.ready())
        async with stack.http.post(stack.url + "/v1/completions", json={"prompt": "x"}) as answer:
            assert answer.status == 503
            assert int(answer.headers["retry-after"]) >= 1
        assert (await stack.get("/health"))[0] == 200
        assert (await stack.get("/ready"))[0] == 503


async def test_failures_before_output_are_tried_elsewhere_and_bad_requests_are_not() -> None:
    async with running(2) as stack:
        first, second = stack.workers
        first.script = lambda submit: [Refuse(Unavailable("down"))]
        for _ in range(20):
            assert (await stack.post("/v1/completions", {"prompt": "x", "max_tokens": 1}))[0] == 200
        calls = len(second.runs)
        first.script = second.script = lambda submit: [Refuse(InvalidRequest("no such thing", field="stop"))]
        before = len(first.runs)
        for _ in range(6):
            status, answer = await stack.post("/v1/completions", {"prompt": "x", "stream": True})
            assert (status, answer["error"]["param"]) == (400, "stop")
        assert len(first.runs) + len(second.runs) - before - calls == 6


async def test_overload_is_spread_and_then_told() -> None:
    async with running(2) as stack:
        stack.workers[0].script = lambda submit: [Refuse(Overloaded("full"))]
        assert (await stack.post("/v1/completions", {"prompt": "x", "max_tokens": 1}))[0] == 200
        stack.workers[1].script = stack.workers[0].script
        async with stack.http.post(stack.url + "/v1/completions", json={"prompt": "x"}) as answer:
            assert answer.status == 429
            assert "retry-after" in answer.headers
        assert all(w.breaker.state.value == "closed" for w in stack.app.parts.registry.workers())


async def test_internal_errors_keep_their_secret(stack: Stack) -> None:
    stack.worker.script = lambda submit: [Refuse(Internal("the worker failed"))]
    status, answer = await stack.post("/v1/completions", {"prompt": "x"})
    assert status == 500
    assert "Traceback" not in json.dumps(answer)


async def test_another_model_cannot_go_on() -> None:
    async with running([FakeWorker(), FakeWorker(digest="other")], hold_secs=0.1) as stack:
        stack.workers[0].script = lambda submit: tale(submit, dies_after=5, end=Finish("INTERRUPTED"))
        stack.workers[1].script = lambda submit: tale(submit)
        while not stack.workers[0].runs:
            await stack.events("/v1/completions", BODY)
        assert not any(s.choices[0].prior_output_ids for s in stack.workers[1].submits)
