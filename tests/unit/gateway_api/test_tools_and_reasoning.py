"""Tools and thoughts at the chat door."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.common.errors import InvalidRequest
from tests.fakes.script import Emit, Finish, Refuse, say
from tests.fakes.stack import Stack, running

PARAMETERS = {"type": "object", "properties": {"a": {"type": "string"}}}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": PARAMETERS}}
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}], "tools": [TOOL]}
CALL = 'Let me see. <tool_call>\n{"name": "f", "arguments": {"a": "' + "y" * 60 + '"}}\n</tool_call>'


@pytest.fixture
async def tools() -> AsyncIterator[Stack]:
    async with running(tool_call_parser="hermes", reasoning_parser="qwen3") as stack:
        yield stack


async def test_a_call_whole(tools: Stack) -> None:
    tools.worker.script = lambda submit: say(CALL)
    _, answer = await tools.post("/v1/chat/completions", ASK)
    [choice] = answer["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Let me see."
    [call] = choice["message"]["tool_calls"]
    assert call["type"] == "function"
    assert json.loads(call["function"]["arguments"]) == {"a": "y" * 60}


async def test_a_call_streamed(tools: Stack) -> None:
    tools.worker.script = lambda submit: say(CALL)
    events = await tools.events("/v1/chat/completions", {**ASK, "stream": True})
    deltas = [json.loads(e)["choices"][0] for e in events[:-1]]
    assert [d["finish_reason"] for d in deltas if d["finish_reason"]] == ["tool_calls"]
    calls = [c for d in deltas for c in d["delta"].get("tool_calls", [])]
    assert {"id", "type"} <= set(calls[0]) and calls[0]["function"]["name"] == "f"
    assert all(set(c) == {"index", "function"} and set(c["function"]) == {"arguments"} for c in calls[1:])
    assert len(calls) > 30
    assert json.loads("".join(c["function"]["arguments"] for c in calls)) == {"a": "y" * 60}
    assert "".join(d["delta"].get("content") or "" for d in deltas) == "Let me see."


async def test_tool_choice_none_is_plain_text(tools: Stack) -> None:
    tools.worker.script = lambda submit: say('{"name": "f"} <tool_call>')
    _, answer = await tools.post("/v1/chat/completions", {**ASK, "tool_choice": "none"})
    message = answer["choices"][0]["message"]
    assert "tool_calls" not in message
    assert message["content"].startswith('{"name": "f"}')
    assert tools.tokenizer.last_chat is not None
    assert tools.tokenizer.last_chat.tools_json == ""


async def test_a_call_cut_by_length_is_not_shown_as_whole(tools: Stack) -> None:
    tools.worker.script = lambda submit: say(CALL[:50], end=Finish("LENGTH"))
    _, answer = await tools.post("/v1/chat/completions", ASK)
    [choice] = answer["choices"]
    assert choice["finish_reason"] == "length"
    assert "tool_calls" not in choice["message"]
    assert choice["message"]["content"] == "Let me see."


async def test_forced_calls_are_bound_by_a_grammar(stack: Stack) -> None:
    stack.worker.script = lambda submit: say('[{"name": "f", "parameters": {"a": "b"}}, {"name": "f", "parameters": {}}]')
    _, answer = await stack.post("/v1/chat/completions", {**ASK, "tool_choice": "required"})
    assert [json.loads(c["function"]["arguments"]) for c in answer["choices"][0]["message"]["tool_calls"]] == [{"a": "b"}, {}]
    assert answer["choices"][0]["message"]["content"] is None
    schema = json.loads(stack.worker.submits[0].constraint.json_schema)
    assert schema["type"] == "array"
    stack.worker.script = lambda submit: say('{"a": "b"}')
    _, answer = await stack.post("/v1/chat/completions", {**ASK, "tool_choice": {"type": "function", "function": {"name": "f"}}})
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a": "b"}'}
    assert json.loads(stack.worker.submits[1].constraint.json_schema) == TOOL["function"]["parameters"]
    _, answer = await stack.post("/v1/chat/completions", {**ASK, "tool_choice": "required", "parallel_tool_calls": False})
    assert json.loads(stack.worker.submits[2].constraint.json_schema)["properties"]["name"] == {"const": "f"}


@pytest.mark.parametrize("stream", [True, False])
async def test_a_model_that_only_adds_white_space_after_its_call_is_stopped(stack: Stack, stream: bool) -> None:
    stack.worker.script = lambda submit: say('[{"name": "f", "parameters": {}}' + " " * 1000, pause_s=0.001)
    body = {**ASK, "tool_choice": "required"}
    if stream:
        events = await stack.events("/v1/chat/completions", {**body, "stream": True})
        choice = json.loads(events[-2])["choices"][0]
    else:
        choice = (await stack.post("/v1/chat/completions", body))[1]["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert stack.worker.runs[0].cause == 7


async def test_a_grammar_begins_after_the_thought(tools: Stack) -> None:
    tools.worker.script = lambda submit: say('<think>hm</think>{"a": 1}')
    body = {"messages": ASK["messages"], "response_format": {"type": "json_object"}}
    _, answer = await tools.post("/v1/chat/completions", body)
    assert list(tools.worker.submits[0].constraint.begin_after_ids) == [258]
    assert list(tools.worker.submits[0].constraint.opening_ids) == [257]
    message = answer["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("hm", '{"a": 1}')
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 4
    _, answer = await tools.post("/v1/chat/completions", {**body, "chat_template_kwargs": {"enable_thinking": False}})
    assert not tools.worker.submits[1].constraint.begin_after_ids


async def test_what_the_template_has_done_about_a_thought_decides(tools: Stack) -> None:
    tools.worker.script = lambda submit: say('hm</think>{"a": 1}' if 257 in submit.prompt.token_ids[-2:] else '{"a": 1}')
    body = {"response_format": {"type": "json_object"}}
    last = {"role": "assistant", "content": "Well: <think>"}
    for content, thought, after in (("x<think>\n", "hm", [258]), ("x<think>\n\n</think>\n\n", None, [])):
        tools.tokenizer.generation_prompt = content
        _, answer = await tools.post("/v1/chat/completions", {**body, "messages": ASK["messages"]})
        message = answer["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == (thought, '{"a": 1}')
        assert list(tools.worker.submits[-1].constraint.begin_after_ids) == after
        assert not tools.worker.submits[-1].constraint.opening_ids
        assert (answer["usage"]["reasoning_tokens"] > 0) == (thought is not None)
    tools.tokenizer.generation_prompt = ""
    _, answer = await tools.post("/v1/chat/completions", {"messages": [*ASK["messages"], last], "continue_final_message": True})
    assert answer["choices"][0]["message"]["reasoning_content"] is not None


async def test_only_allowed_tools_are_shown_and_called(stack: Stack) -> None:
    other = {"type": "function", "function": {"name": "g"}}
    named = [{"type": "function", "function": {"name": "f"}}]
    stack.worker.script = lambda submit: say('[{"name": "f", "parameters": {}}]')
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": named}}
    _, answer = await stack.post("/v1/chat/completions", {**ASK, "tools": [TOOL, other], "tool_choice": allowed})
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "f"
    assert json.loads(stack.worker.submits[0].constraint.json_schema)["items"]["properties"]["name"] == {"const": "f"}
    assert stack.tokenizer.last_chat is not None
    assert [tool["function"]["name"] for tool in json.loads(stack.tokenizer.last_chat.tools_json)] == ["f"]


async def test_strict_tools_are_bound_where_the_family_can_be_described(tools: Stack) -> None:
    strict = {"type": "function", "function": {**TOOL["function"], "strict": True}}
    tools.worker.script = lambda submit: say("no call")
    status, _ = await tools.post("/v1/chat/completions", {**ASK, "tools": [strict]})
    assert status == 200
    tag = json.loads(tools.worker.submits[0].constraint.structural_tag)
    assert tag["format"]["tags"][0]["content"]["json_schema"] == PARAMETERS
    assert tools.tokenizer.last_chat is not None
    assert "strict" not in tools.tokenizer.last_chat.tools_json


@pytest.mark.parametrize("family", ["hermes", "llama3", "mistral", "deepseek", "pythonic"])
async def test_every_family_takes_strict_tools_beside_others(family: str) -> None:
    strict = {"type": "function", "function": {**TOOL["function"], "strict": True}}
    other = {"type": "function", "function": {"name": "g"}}
    async with running(tool_call_parser=family) as stack:
        stack.worker.script = lambda submit: say("no call")
        status, answer = await stack.post("/v1/chat/completions", {**ASK, "tools": [strict, other]})
        assert (status, answer["choices"][0]["message"]["content"]) == (200, "no call")
        tag = stack.worker.submits[0].constraint.structural_tag
        assert "f" in tag and "g" in tag and json.loads(tag)["type"] == "structural_tag"


async def test_the_worker_is_told_which_special_tokens_are_text(tools: Stack) -> None:
    tools.worker.script = lambda submit: say("no call")
    await tools.post("/v1/chat/completions", {**ASK, "stop": ["</tool_call>"], "spaces_between_special_tokens": True})
    stops = tools.worker.submits[0].stops
    assert set(stops.keep_special_ids) == {257, 258, 259, 260}
    assert stops.skip_special_tokens and stops.spaces_between_special


async def test_streamed_reasoning(tools: Stack) -> None:
    tools.worker.script = lambda submit: say("<think>hm hm</think>\nyes")
    body = {"messages": ASK["messages"], "stream": True, "stream_options": {"include_usage": True}}
    events = [json.loads(e) for e in (await tools.events("/v1/chat/completions", body))[:-1]]
    deltas = [e["choices"][0]["delta"] for e in events if e["choices"]]
    assert "".join(d.get("reasoning_content") or "" for d in deltas) == "hm hm"
    assert "".join(d.get("content") or "" for d in deltas) == "yes"
    assert events[-1]["usage"]["reasoning_tokens"] == 7


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"tool_choice": "maybe"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "any", "tools": []}}}, "tool_choice.allowed_tools.mode"),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}}, "tool_choice.allowed_tools.tools"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
        ({"tools": [TOOL, TOOL]}, "tools"),
        ({"tools": "x"}, "tools"),
        ({"tool_choice": "required", "regex": "a"}, "tool_choice"),
        ({"tools": [{"type": "function", "function": {"name": "f", "strict": True}}]}, "tools"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": "oops"}}}, "response_format.json_schema.schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": []}}}, "response_format.json_schema.schema"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"response_format": {"type": "json_object"}, "regex": "a"}, "regex"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 5000}, "top_logprobs"),
    ],
)
async def test_bad_tools_and_formats(stack: Stack, change: dict[str, Any], field: str) -> None:
    status, answer = await stack.post("/v1/chat/completions", {**ASK, **change})
    assert (status, answer["error"]["param"]) == (400, field)


async def test_every_run_has_one_finish_reason(tools: Stack) -> None:
    for end in range(0, len(CALL), 3):
        script = [Emit([97]), *say(CALL[:end], end=Finish("LENGTH"))]
        tools.worker.script = lambda submit, script=script: script  # type: ignore[misc]
        events = await tools.events("/v1/chat/completions", {**ASK, "stream": True})
        reasons = [json.loads(e)["choices"][0]["finish_reason"] for e in events[:-1]]
        assert len([r for r in reasons if r]) == 1


@pytest.mark.parametrize(
    ("change", "kind", "field"),
    [
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}, "json_schema", "response_format.json_schema.schema"),
        ({"response_format": {"type": "structural_tag", "format": {}}}, "structural_tag", "response_format"),
        ({"tools": [TOOL], "tool_choice": "required"}, "json_schema", "tools"),
        ({"guided_json": {}}, "json_schema", "guided_json"),
        ({"guided_choice": ["a"]}, "regex", "guided_choice"),
        ({"regex": "a"}, "regex", "regex"),
    ],
)
async def test_what_the_worker_refuses_names_the_field_of_the_request(stack: Stack, change: dict[str, Any], kind: str, field: str) -> None:
    stack.worker.script = lambda submit: [Refuse(InvalidRequest(f"{kind}: #/a: no", field=kind))]
    status, answer = await stack.post("/v1/chat/completions", {"messages": ASK["messages"], **change})
    assert (status, answer["error"]["param"]) == (400, field)
    assert answer["error"]["message"] == f"{field}: #/a: no"
