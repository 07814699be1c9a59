"""Completions: prompts of every shape, echo, logprobs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fakes.script import Finish, Logprobs, say
from tests.fakes.stack import Stack

ASK: dict[str, Any] = {"model": "fake", "prompt": "Say hi"}


@pytest.mark.parametrize(("prompt", "count"), [("ab", 1), (["ab", "cd"], 2), ([97, 98], 1), ([[97], [98, 99], [100]], 3)])
async def test_every_shape_of_prompt(stack: Stack, prompt: Any, count: int) -> None:
    stack.worker.script = lambda submit: say("x" + bytes(submit.prompt.token_ids).decode())
    status, answer = await stack.post("/v1/completions", {**ASK, "prompt": prompt, "n": 2})
    assert status == 200
    assert [choice["index"] for choice in answer["choices"]] == list(range(2 * count))
    rows = prompt if count > 1 else [prompt]
    texts = [row if isinstance(row, str) else bytes(row).decode() for row in rows]
    assert [choice["text"] for choice in answer["choices"]] == ["x" + text for text in texts for _ in range(2)]


@pytest.mark.parametrize("prompt", [[-1], [[-1]], [5, 999999999], [1.5], [True], ["a", 5], [[]], [], "", [""], None, {"a": 1}, 5])
async def test_bad_prompts_name_the_field(stack: Stack, prompt: Any) -> None:
    status, answer = await stack.post("/v1/completions", {**ASK, "prompt": prompt})
    assert status == 400
    assert answer["error"]["param"].startswith("prompt")
    assert not stack.worker.runs
    status, _ = await stack.post("/v1/completions", {**ASK, "prompt": [5, 6], "max_tokens": 1})
    assert status == 200


def _with_logprobs() -> list[Any]:
    tokens = "hé".encode()
    return [*(Logprobs(t, -0.5, ((t, -0.5), (120, -1.5))) for t in tokens), Finish("LENGTH")]


async def test_logprobs_have_equal_lengths_and_offsets_that_go_on(stack: Stack) -> None:
    stack.worker.script = lambda submit: _with_logprobs()
    _, whole = await stack.post("/v1/completions", {**ASK, "logprobs": 2, "max_tokens": 3})
    logprobs = whole["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["h", "bytes:\\xc3", "bytes:\\xa9"]
    assert logprobs["text_offset"] == [0, 1, 1]
    assert logprobs["token_logprobs"] == [-0.5] * 3
    assert logprobs["top_logprobs"][0] == {"h": -0.5, "x": -1.5}
    events = await stack.events("/v1/completions", {**ASK, "logprobs": 2, "max_tokens": 3, "stream": True})
    joined: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    text = ""
    for event in events[:-1]:
        choice = json.loads(event)["choices"][0]
        text += choice["text"]
        for name, values in (choice["logprobs"] or {}).items():
            joined[name] += values
    assert joined == logprobs
    assert text == whole["choices"][0]["text"] == "hé"


async def test_logprobs_zero_means_the_chosen_only(stack: Stack) -> None:
    stack.worker.script = lambda submit: [Logprobs(104, -0.25), Finish("LENGTH")]
    _, answer = await stack.post("/v1/completions", {**ASK, "logprobs": 0})
    assert answer["choices"][0]["logprobs"]["token_logprobs"] == [-0.25]
    assert stack.worker.submits[0].output.HasField("top_logprobs")


async def test_echo_puts_the_prompt_first(stack: Stack) -> None:
    stack.worker.script = lambda submit: say("!")
    _, answer = await stack.post("/v1/completions", {**ASK, "echo": True})
    assert answer["choices"][0]["text"] == "Say hi!"
    events = await stack.events("/v1/completions", {**ASK, "prompt": [[97, 98]], "echo": True, "stream": True})
    assert "".join(json.loads(e)["choices"][0]["text"] for e in events[:-1]) == "ab!"


async def test_default_length_is_sixteen(stack: Stack) -> None:
    await stack.post("/v1/completions", ASK)
    await stack.post("/v1/completions", {**ASK, **dict.fromkeys(["max_tokens", "n", "stop", "seed", "logprobs", "temperature"])})
    assert [submit.stops.max_new_tokens for submit in stack.worker.submits] == [16, 16]


async def test_streamed_batch_tells_choices_apart(stack: Stack) -> None:
    stack.worker.script = lambda submit: say(bytes(submit.prompt.token_ids).decode() * 2)
    body = {**ASK, "prompt": ["ab", "cd"], "stream": True, "stream_options": {"include_usage": True}}
    events = await stack.events("/v1/completions", body)
    texts: dict[int, str] = {}
    for event in events[:-1]:
        for choice in json.loads(event)["choices"]:
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    assert texts == {0: "abab", 1: "cdcd"}
    assert json.loads(events[-2])["usage"]["prompt_tokens"] == 4


async def test_a_choice_of_texts_is_one_of_them_bare(stack: Stack) -> None:
    status, _ = await stack.post("/v1/completions", {"prompt": "x", "guided_choice": ["a.b", "é\n", "a.b"]})
    assert status == 200
    assert stack.worker.submits[0].constraint.regex == "a\\.b|é\\\n"


async def test_two_grammars_exclude_each_other(stack: Stack) -> None:
    status, answer = await stack.post("/v1/completions", {"prompt": "x", "response_format": {"type": "json_object"}, "regex": "a"})
    assert (status, answer["error"]["param"]) == (400, "regex")


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({"json": {"type": "object"}}, "json_schema", '{"type": "object"}'),
        ({"json": '{"type": "array"}', "regex": None}, "json_schema", '{"type": "array"}'),
        ({"json_object": True}, "json_schema", '{"type": "object"}'),
        ({"choice": ["a", "b"]}, "regex", "a|b"),
        ({"grammar": 'root ::= "a"'}, "ebnf", 'root ::= "a"'),
        ({"regex": "a+", "json_object": False}, "regex", "a+"),
    ],
)
async def test_structured_outputs(stack: Stack, given: dict[str, Any], kind: str, text: str) -> None:
    assert (await stack.post("/v1/completions", {"prompt": "x", "structured_outputs": given}))[0] == 200
    assert getattr(stack.worker.submits[0].constraint, kind) == text


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"regexp": "a"}, ".regexp"),
        ({"json": {}, "regex": "a"}, ".regex"),
        ({"regex": ""}, ".regex"),
        ({"json": "oops"}, ".json"),
        ({"choice": []}, ".choice"),
        ({"json_object": 1}, ".json_object"),
        ({"disable_any_whitespace": True}, ".disable_any_whitespace"),
    ],
)
async def test_structured_outputs_that_are_none(stack: Stack, given: dict[str, Any], field: str) -> None:
    status, answer = await stack.post("/v1/completions", {"prompt": "x", "structured_outputs": given})
    assert (status, answer["error"]["param"]) == (400, "structured_outputs" + field)
    assert (await stack.post("/v1/completions", {"prompt": "x", "structured_outputs": {}}))[0] == 200
