"""/generate."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fakes.fake_worker import FakeWorker
from tests.fakes.script import Finish, Logprobs, Wait, say
from tests.fakes.stack import Stack, running

ASK: dict[str, Any] = {"text": "Say hi"}


async def test_meta_info_has_every_field(stack: Stack) -> None:
    status, answer = await stack.post("/generate", {**ASK, "rid": "me", "sampling_params": {"max_new_tokens": 12}})
    assert status == 200
    info = answer["meta_info"]
    assert info["id"] == "me"
    assert info["finish_reason"] == {"type": "length", "length": 12}
    assert (info["prompt_tokens"], info["completion_tokens"], info["cached_tokens"]) == (6, 12, 3)
    assert info["cached_tokens_details"] == {"device": 3, "host": 0}
    assert info["e2e_latency"] >= info["first_token_latency"] >= 0
    assert info["weight_version"] == "v1"
    assert {"num_retractions", "queue_time", "decode_throughput", "dp_rank", "reasoning_tokens", "resumes"} <= set(info)
    assert len(answer["output_ids"]) == 12


async def test_a_list_answers_with_a_list_in_order(stack: Stack) -> None:
    stack.worker.script = lambda submit: say(bytes(submit.prompt.token_ids).decode())
    _, answer = await stack.post("/generate", {"text": ["a", "b", "c"], "sampling_params": {"n": 2}})
    assert [one["text"] for one in answer] == ["a", "a", "b", "b", "c", "c"]
    _, answer = await stack.post("/generate", {"text": ["a"]})
    assert [one["text"] for one in answer] == ["a"]
    params = [{"max_new_tokens": 3}, {"max_new_tokens": 4}]
    _, answer = await stack.post("/generate", {"input_ids": [[97], [98]], "sampling_params": params})
    assert [submit.stops.max_new_tokens for submit in stack.worker.submits[-2:]] == [3, 4]


async def test_defaults_reach_the_worker(stack: Stack) -> None:
    await stack.post("/generate", ASK)
    [submit] = stack.worker.submits
    assert submit.stops.max_new_tokens == 128
    sampling = submit.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p, sampling.repetition_penalty) == (1, 1, -1, 0, 1)


async def test_requests_without_a_seed_get_the_operators() -> None:
    async with running(default_seed=42) as stack:
        for params in ({}, {"sampling_seed": 7}, {"n": 2}):
            await stack.post("/generate", {**ASK, "sampling_params": params})
        seeds = [[choice.seed for choice in submit.choices] for submit in stack.worker.submits]
    assert seeds[:2] == [[42], [7]]
    assert seeds[2][0] == 42 != seeds[2][1]


async def test_what_belongs_together_is_named_to_the_worker(stack: Stack) -> None:
    await stack.post("/generate", {**ASK, "routing_key": "chat 1"})
    await stack.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "prompt_cache_key": "chat 2"})
    await stack.post("/generate", ASK)
    assert [submit.session for submit in stack.worker.submits] == ["chat 1", "chat 2", ""]


@pytest.mark.parametrize("incremental", [False, True])
async def test_streams_are_cumulative_unless_told_otherwise(incremental: bool) -> None:
    async with running(incremental_streaming_output=incremental) as stack:
        stack.worker.script = lambda submit: [step for one in say("abc") for step in (one, Wait(0.05))]
        events = [json.loads(event) for event in (await stack.events("/generate", {**ASK, "stream": True}))[:-1]]
    texts = [event["text"] for event in events]
    assert len(texts) > 2  # tokens that come close together may share an event
    assert ("".join(texts), texts[-1]) == ("abc", "") if incremental else texts == sorted(texts, key=len) and texts[-2:] == ["abc"] * 2
    assert events[-1]["meta_info"]["finish_reason"] == {"type": "stop", "matched": 256}
    assert events[0]["meta_info"]["finish_reason"] is None


async def test_logprobs_in_meta_info(stack: Stack) -> None:
    stack.worker.script = lambda submit: [Logprobs(104, -0.5, ((104, -0.5), (105, -1.0))), Finish("LENGTH")]
    body = {**ASK, "return_logprob": True, "top_logprobs_num": 2, "return_text_in_logprobs": True}
    _, answer = await stack.post("/generate", body)
    assert answer["meta_info"]["output_token_logprobs"] == [[-0.5, 104, "h"]]
    assert answer["meta_info"]["output_top_logprobs"] == [[[-0.5, 104, "h"], [-1.0, 105, "i"]]]
    events = await stack.events("/generate", {**body, "stream": True})
    assert json.loads(events[-2])["meta_info"]["output_token_logprobs"] == [[-0.5, 104, "h"]]


@pytest.mark.parametrize("more", [{}, {"return_logprob": True}, {"return_logprob": True, "return_text_in_logprobs": True}])
async def test_one_event_of_a_choice_tells_the_finish(stack: Stack, more: dict[str, Any]) -> None:
    """The last text and the finish come from the worker together, so the finish is known when the text goes out."""
    tokens = [Logprobs(token, -0.5, ()) for token in b"abc"]
    stack.worker.script = lambda submit: [*(tokens if more else say("abc")[:-1]), Finish("LENGTH")]
    events = await stack.events("/generate", {**ASK, **more, "stream": True, "sampling_params": {"n": 2}})
    ended = [event["index"] for event in map(json.loads, events[:-1]) if event["meta_info"]["finish_reason"]]
    assert sorted(ended) == [0, 1]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "text"),
        ({"text": ""}, "text"),
        ({"text": "a", "input_ids": [1]}, "input_ids"),
        ({"input_ids": []}, "input_ids"),
        ({"input_ids": [[]]}, "input_ids"),
        ({"text": ["a", 1]}, "text"),
        ({"text": "a", "rid": ["x"]}, "rid"),
        ({"text": ["a", "b"], "rid": "x"}, "rid"),
        ({"text": ["a", "b"], "rid": ["x", "x"]}, "rid"),
        ({"text": "a", "sampling_params": []}, "sampling_params"),
        ({"text": "a", "sampling_params": {"max_new_tokens": 0}}, "sampling_params.max_new_tokens"),
        ({"text": "a", "lora_path": "x"}, "lora_path"),
        ({"text": "a", "stream": "yes"}, "stream"),
        ({"text": "a", "top_logprobs_num": 2}, "top_logprobs_num"),
        ({"text": "a", "sampling_params": {"json_schema": "{}", "regex": "a"}}, "sampling_params.regex"),
        ({"text": "a", "sampling_params": {"stop": ""}}, "sampling_params.stop"),
        ({"text": "a", "return_logprob": True, "logprob_start_len": 5000}, "logprob_start_len"),
        ({"text": "\ud800"}, "text"),
    ],
)
async def test_bad_bodies_name_the_field(stack: Stack, body: Any, field: str) -> None:
    status, answer = await stack.post("/generate", body)
    assert (status, answer["error"]["param"]) == (400, field)
    status, _ = await stack.post("/generate", {**ASK, "sampling_params": {"max_new_tokens": 1}})
    assert status == 200


async def test_an_id_in_use_is_refused_and_free_again_afterwards(stack: Stack) -> None:
    import asyncio

    stack.worker.pace_s = 0.05
    body = {**ASK, "rid": "same", "sampling_params": {"max_new_tokens": 8}}
    first = asyncio.create_task(stack.post("/generate", body))
    await asyncio.sleep(0.15)
    status, answer = await stack.post("/generate", body)
    assert (status, answer["error"]["param"]) == (409, "rid")
    assert (await first)[0] == 200
    assert (await stack.post("/generate", body))[0] == 200


async def test_aborted_by_exact_id(stack: Stack) -> None:
    import asyncio

    worker: FakeWorker = stack.worker
    worker.pace_s = 0.02
    long = {**ASK, "sampling_params": {"max_new_tokens": 2000}}
    a1 = asyncio.create_task(stack.post("/generate", {**long, "rid": "a1"}))
    a10 = asyncio.create_task(stack.post("/generate", {**long, "rid": "a10"}))
    await asyncio.sleep(0.3)
    assert (await stack.post("/abort_request", {"rid": "a1"}))[1] == {"aborted": 1}
    status, answer = await a1
    assert (status, answer["meta_info"]["finish_reason"]["type"]) == (200, "abort")
    assert not a10.done()
    assert (await stack.post("/abort_request", {"rid": "nobody"}))[0] == 200
    assert worker.aborts == ["nobody"]
    await stack.post("/abort_request", {"abort_all": True})
    assert (await a10)[1]["meta_info"]["finish_reason"]["type"] == "abort"
