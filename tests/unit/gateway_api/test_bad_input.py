"""Bad values get the same verdict at every door, and the next request works."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from tests.fakes.fake_worker import FakeWorker
from tests.fakes.script import say
from tests.fakes.stack import Stack, running

BAD = [
    ("temperature", -1),
    ("temperature", 5),
    ("temperature", "hot"),
    ("temperature", True),
    ("top_p", 0),
    ("top_p", 1.5),
    ("min_p", 2),
    ("frequency_penalty", 100),
    ("presence_penalty", -3),
    ("repetition_penalty", 0),
    ("top_k", 0),
    ("top_k", -2),
    ("top_k", 1.5),
    ("n", 0),
    ("n", 100_000),
    ("seed", "x"),
    ("seed", 1.5),
    ("stop", ""),
    ("stop", [""]),
    ("stop", ["", "x"]),
    ("stop", 5),
    ("stop", ["x"] * 33),
    ("stop_regex", ["a" * 257]),
    ("stop_regex", "("),
    ("stop_regex", ["a", "(?=a)b"]),
    ("stop_regex", "a*"),
    ("structured_outputs", []),
    ("structured_outputs", "json"),
    ("guided_choice", []),
    ("guided_choice", "yes"),
    ("guided_choice", ["yes", 1]),
    ("guided_choice", ["yes", ""]),
    ("stop_token_ids", [-1]),
    ("stop_token_ids", [99_999_999]),
    ("logit_bias", {"99999999": 5}),
    ("logit_bias", {"-1": 1}),
    ("logit_bias", {"abc": 1}),
    ("logit_bias", {"05": 1}),
    ("logit_bias", {"٣": 1}),
    ("logit_bias", {"5": 500}),
    ("logit_bias", {str(i): 1 for i in range(2000)}),
    ("ignore_eos", "yes"),
    ("regex", ""),
    ("json_schema", "oops"),
    ("json_schema", "[]"),
]
GOOD = [("temperature", 0), ("top_p", 1), ("top_k", -1), ("stop", []), ("stop", None), ("stop", ["a"] * 32), ("seed", -5), ("n", 2)]


def _bodies(name: str, value: Any) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("/v1/chat/completions", {"model": "fake", "messages": [{"role": "user", "content": "x"}], name: value, "max_tokens": 2}),
        ("/v1/completions", {"model": "fake", "prompt": "x", name: value, "max_tokens": 2}),
        ("/generate", {"text": "x", "sampling_params": {name: value, "max_new_tokens": 2}}),
    ]


async def test_same_verdict_at_each_door(stack: Stack) -> None:
    for name, value in BAD:
        for path, body in _bodies(name, value):
            status, answer = await stack.post(path, body)
            assert status == 400, (path, name, value, answer)
            assert answer["error"]["param"].removeprefix("sampling_params.") == name, (path, name, value, answer)
    assert not stack.worker.runs
    for name, value in GOOD:
        for path, body in _bodies(name, value):
            status, answer = await stack.post(path, body)
            assert status == 200, (path, name, value, answer)


async def test_infinite_numbers(stack: Stack) -> None:
    for raw in (b'{"prompt":"x","temperature":1e999}', b'{"prompt":"x","temperature":NaN}'):
        async with stack.http.post(stack.url + "/v1/completions", data=raw) as answer:
            assert answer.status == 400


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_zero_tokens_is_refused(stack: Stack, name: str) -> None:
    path, body = _bodies("n", 1)[0]
    del body["max_tokens"]
    status, answer = await stack.post(path, {**body, name: 0})
    assert (status, answer["error"]["param"]) == (400, name)


async def test_too_long_is_always_the_same_code(stack: Stack) -> None:
    long, room = "x" * 5000, 4096
    for path, body in (
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": long}]}),
        ("/v1/completions", {"prompt": long}),
        ("/generate", {"text": long}),
        ("/v1/completions", {"prompt": "x" * 4000, "max_tokens": 97}),
        ("/generate", {"text": "x" * 4000, "sampling_params": {"max_new_tokens": 97}}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_completion_tokens": room}),
    ):
        status, answer = await stack.post(path, body)
        assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
        assert str(room) in answer["error"]["message"]


async def test_kv_pool_smaller_than_the_context() -> None:
    async with running([FakeWorker(pool=256)]) as stack:
        status, answer = await stack.post("/v1/completions", {"prompt": "x" * 300})
        assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
        assert "256" in answer["error"]["message"]


async def test_bodies(stack: Stack) -> None:
    async def post(data: bytes, **headers: str) -> tuple[int, Any]:
        async with stack.http.post(stack.url + "/v1/completions", data=data, headers=headers) as answer:
            return answer.status, json.loads(await answer.read())

    assert (await post(b"\xff{}"))[0] == 400
    assert (await post(b'{"prompt": "\xff"}'))[1]["error"]["param"] == "body"
    assert (await post(b"[1]"))[0] == 400
    assert (await post(b"{"))[0] == 400
    assert (await post(b"[" * 100_000))[0] == 400
    assert (await post(b""))[0] == 400
    good = gzip.compress(b'{"prompt":"x","max_tokens":1}')
    assert (await post(good, **{"content-encoding": "gzip"}))[0] == 200
    assert (await post(good[:-9], **{"content-encoding": "gzip"}))[0] == 400
    assert (await post(b"abc", **{"content-encoding": "gzip"}))[0] == 400
    assert (await post(b"abc", **{"content-encoding": "br"}))[0] == 400


async def test_body_limits() -> None:
    async with running(max_body_bytes=100_000) as stack:

        async def post(data: Any, **headers: str) -> int:
            async with stack.http.post(stack.url + "/v1/completions", data=data, headers=headers) as answer:
                assert "error" in json.loads(await answer.read())
                return answer.status

        assert await post(b"x" * 100_001) == 413
        assert await post(gzip.compress(b" " * 10_000_000), **{"content-encoding": "gzip"}) == 413

        async def chunks() -> Any:
            for _ in range(100):
                yield b" " * 10_000

        assert await post(chunks()) == 413
        stack.worker.script = lambda submit: say("ok")
        assert (await stack.post("/v1/completions", {"prompt": "x"}))[0] == 200


async def test_unknown_models_and_routes(stack: Stack) -> None:
    for path, body in (("/v1/completions", {"prompt": "x"}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})):
        status, answer = await stack.post(path, {**body, "model": "nope"})
        assert (status, answer["error"]["code"]) == (404, "model_not_found")
        status, answer = await stack.post(path, {**body, "model": 5})
        assert (status, answer["error"]["param"]) == (400, "model")
    assert (await stack.get("/v1/models/nope"))[0] == 404
    assert (await stack.get("/v1/models/fake"))[1]["max_model_len"] == 4096
    assert (await stack.get("/no/such/route"))[0] == 404
    for route, why in (("responses", "Responses"), ("embeddings", "embeddings"), ("responses/x/cancel", "Responses"), ("x", "")):
        status, refusal = await stack.post(f"/v1/{route}", {})
        assert (status, refusal["error"]["code"]) == (404, "route_not_found")
        assert why in refusal["error"]["message"]
    async with stack.http.get(stack.url + "/generate") as answer:
        assert answer.status == 405
        assert "POST" in answer.headers["allow"]


async def test_fields_without_effect_and_refused_ones(stack: Stack) -> None:
    ask: dict[str, Any] = {"messages": [{"role": "user", "content": "x", "name": "bob", "id": 7}], "max_tokens": 2}
    extra = {"user": "u1", "metadata": {"a": "b"}, "store": False, "foo": 1, "service_tier": "auto", "modalities": ["text"]}
    assert (await stack.post("/v1/chat/completions", {**ask, **extra}))[0] == 200
    refused: list[tuple[str, Any]] = [("store", True), ("audio", {"voice": "x"}), ("functions", [{}])]
    for name, value in [*refused, ("reasoning_effort", "low"), ("lora_path", "x")]:
        status, answer = await stack.post("/v1/chat/completions", {**ask, name: value})
        assert (status, answer["error"]["param"]) == (400, name)
    for name, value in (("suffix", "x"), ("best_of", 3), ("use_beam_search", True)):
        status, answer = await stack.post("/v1/completions", {"prompt": "x", name: value})
        assert (status, answer["error"]["param"]) == (400, name)
    assert (await stack.post("/v1/completions", {"prompt": "x", "n": 3, "best_of": 2}))[0] == 400


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ([], "messages"),
        ("hi", "messages"),
        ([5], "messages[0]"),
        ([{"role": "robot", "content": "x"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "text", "text": 5}]}], "messages[0].content[0].text"),
        ([{"role": "assistant", "content": "", "tool_calls": [{}]}], "messages[0].tool_calls[0].function"),
        (
            [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}],
            "messages[0].tool_calls[0].function.arguments",
        ),
    ],
)
async def test_bad_messages(stack: Stack, messages: Any, field: str) -> None:
    status, answer = await stack.post("/v1/chat/completions", {"messages": messages})
    assert (status, answer["error"]["param"]) == (400, field)


async def test_messages_of_one_meaning_have_one_shape(stack: Stack) -> None:
    async def tokens(*messages: dict[str, Any]) -> int:
        status, answer = await stack.post("/v1/chat/completions", {"messages": list(messages), "max_tokens": 1})
        assert status == 200, answer
        return int(answer["usage"]["prompt_tokens"])

    user = {"role": "user", "content": "x"}
    assert await tokens(user, {"role": "assistant", "content": "ok"}, user) == await tokens(
        user, {"role": "assistant", "content": "ok", "tool_calls": []}, user
    )
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    tool = {"role": "tool", "tool_call_id": "c"}
    plain = await tokens(user, {"role": "assistant", "content": None, "tool_calls": [call]}, {**tool, "content": "10525"})
    parts = [{"type": "text", "text": "10"}, {"type": "text", "text": "525"}]
    assert plain == await tokens(user, {"role": "assistant", "tool_calls": [call]}, {**tool, "content": parts})
    assert await tokens({"role": "system", "content": "b"}, user) == await tokens({"role": "developer", "content": "b"}, user)
