"""`schema_check: after`: the grammar holds what it can, the whole answer is checked, and every door tells the verdict."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from protos.gateway.v1 import gateway_pb2 as pb
from protos.gateway.v1 import gateway_pb2_grpc as pb_grpc
from tests.fakes.script import Finish, say
from tests.fakes.stack import Stack, running

SCHEMA: dict[str, Any] = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
MESSAGES = [{"role": "user", "content": "x"}]
CHAT = {"messages": MESSAGES, "response_format": FORMAT, "schema_check": "after"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": SCHEMA}}}}
CALL = '<tool_call>{"name": "f", "arguments": {"a": [%s]}}</tool_call>'


@pytest.fixture
async def stack() -> AsyncIterator[Stack]:
    async with running(tool_call_parser="hermes") as started:
        yield started


def errors_of(verdict: dict[str, Any]) -> list[tuple[str, str]]:
    assert verdict["valid"] is False
    return [(error["path"], error["keyword"]) for error in verdict["errors"]]


async def test_a_whole_chat_answer(stack: Stack) -> None:
    stack.worker.script = lambda submit: say("[1, 2]")
    _, answer = await stack.post("/v1/chat/completions", CHAT)
    assert answer["choices"][0]["schema_check"] == {"valid": True}
    assert json.loads(stack.worker.submits[0].constraint.lenient_json_schema) == SCHEMA
    stack.worker.script = lambda submit: say("[1, 1]")
    _, answer = await stack.post("/v1/chat/completions", CHAT)
    [choice] = answer["choices"]
    assert choice["finish_reason"] == "stop" and choice["message"]["content"] == "[1, 1]"
    assert errors_of(choice["schema_check"]) == [("", "uniqueItems")]
    assert choice["schema_check"]["errors"][0]["schema_path"] == "#/uniqueItems"


async def test_an_answer_that_was_cut_is_no_json(stack: Stack) -> None:
    stack.worker.script = lambda submit: say("[1, 2", end=Finish("LENGTH"))
    _, answer = await stack.post("/v1/chat/completions", CHAT)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert "not JSON" in answer["choices"][0]["schema_check"]["errors"][0]["message"]


async def test_a_streamed_answer_has_the_verdict_before_its_totals(stack: Stack) -> None:
    stack.worker.script = lambda submit: say("[1, 1]")
    body = {**CHAT, "n": 2, "stream": True, "stream_options": {"include_usage": True}}
    events = [json.loads(event) for event in (await stack.events("/v1/chat/completions", body))[:-1]]
    assert events[-1]["usage"]["completion_tokens"] and not events[-1]["choices"]
    assert events[-2]["choices"] == []
    assert [verdict["index"] for verdict in events[-2]["schema_check"]] == [0, 1]
    assert errors_of(events[-2]["schema_check"][1]) == [("", "uniqueItems")]
    assert not any("schema_check" in event for event in events[:-2])


@pytest.mark.parametrize("stream", [False, True])
async def test_completions_of_several_prompts(stack: Stack, stream: bool) -> None:
    stack.worker.script = lambda submit: say("[3, 3]" if submit.prompt.token_ids[0] == ord("b") else "[3]")
    body = {"prompt": ["a", "b"], "json_schema": SCHEMA, "schema_check": "after"}
    if stream:
        verdicts = json.loads((await stack.events("/v1/completions", {**body, "stream": True}))[-2])["schema_check"]
    else:
        verdicts = [choice["schema_check"] for choice in (await stack.post("/v1/completions", body))[1]["choices"]]
    assert verdicts[0]["valid"] is True
    assert errors_of(verdicts[1]) == [("", "uniqueItems")]


@pytest.mark.parametrize("stream", [False, True])
async def test_native(stack: Stack, stream: bool) -> None:
    stack.worker.script = lambda submit: say("[3, 3]")
    body = {"text": "a", "sampling_params": {"json_schema": json.dumps(SCHEMA), "schema_check": "after"}}
    if stream:
        [verdict] = json.loads((await stack.events("/generate", {**body, "stream": True}))[-2])["schema_check"]
    else:
        verdict = (await stack.post("/generate", body))[1]["meta_info"]["schema_check"]
    assert errors_of(verdict) == [("", "uniqueItems")]


async def test_grpc(stack: Stack) -> None:
    stack.worker.script = lambda submit: say("[3, 3]")
    sampling = pb.SamplingParams(json_schema=json.dumps(SCHEMA), schema_check="after")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{stack.app.host.port}") as channel:
        door = pb_grpc.GatewayStub(channel)  # type: ignore[no-untyped-call]
        for stream in (False, True):
            last = [m async for m in door.Generate(pb.GenerateRequest(text="a", sampling=sampling, stream=stream))][-1]
            assert errors_of(json.loads(last.schema_check_json)) == [("", "uniqueItems")]


@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "function": {"name": "f"}}])
@pytest.mark.parametrize("numbers, valid", [("1, 2", True), ("1, 1", False)])
async def test_arguments_of_calls(stack: Stack, choice: Any, numbers: str, valid: bool) -> None:
    said = {"auto": CALL % numbers, "required": f'[{{"name": "f", "parameters": {{"a": [{numbers}]}}}}]'}
    stack.worker.script = lambda submit: say(said.get(str(choice), f'{{"a": [{numbers}]}}'))
    body = {"messages": MESSAGES, "tools": [TOOL], "tool_choice": choice, "schema_check": "after"}
    _, answer = await stack.post("/v1/chat/completions", body)
    [made] = answer["choices"]
    assert made["finish_reason"] == "tool_calls"
    if valid:
        assert made["schema_check"] == {"valid": True}
    else:
        assert errors_of(made["schema_check"]) == [("/a", "uniqueItems")]
        assert made["schema_check"]["errors"][0]["tool_call"] == 0


@pytest.mark.parametrize(
    "change, field",
    [
        ({"schema_check": "never"}, "schema_check"),
        ({"schema_check": True}, "schema_check"),
        ({"schema_check": "after", "regex": "a"}, "schema_check"),
        ({"schema_check": "after"}, "schema_check"),
        ({"schema_check": "after", "json_schema": {"type": "string", "contentEncoding": "base64"}}, "json_schema"),
        ({"schema_check": "after", "guided_json": {"type": "string", "format": "colour"}}, "guided_json"),
        ({"schema_check": "after", "json_schema": {"not": {"$ref": "https://example.com/x"}}}, "json_schema"),
        ({"schema_check": "after", "json_schema": {"type": "string", "pattern": "(?=a)b"}}, "json_schema"),
        ({"schema_check": "after", "json_schema": {"contains": 5}}, "json_schema"),
    ],
)
async def test_what_cannot_be_checked_is_refused(stack: Stack, change: dict[str, Any], field: str) -> None:
    for path, body in (("/v1/chat/completions", {"messages": MESSAGES}), ("/v1/completions", {"prompt": "x"})):
        status, answer = await stack.post(path, {**body, **change, "stream": True})
        assert (status, answer["error"]["param"]) == (400, field)
    status, answer = await stack.post("/generate", {"text": "x", "sampling_params": change})
    assert (status, answer["error"]["param"]) == (400, f"sampling_params.{field}")
    assert stack.worker.runs == []


async def test_a_tool_that_cannot_be_checked_is_named(stack: Stack) -> None:
    tool = {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "contains": 5}}}
    _, answer = await stack.post("/v1/chat/completions", {"messages": MESSAGES, "tools": [TOOL, tool], "schema_check": "after"})
    assert answer["error"]["param"] == "tools" and "parameters of g" in answer["error"]["message"]
