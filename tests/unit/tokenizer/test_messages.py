"""Chat messages are checked at the edge and come out in one form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.common.errors import InvalidRequest
from services.tokenizer.messages import parse_messages, parse_object, parse_tools


def _parse(*messages: Any, knows_developer: bool = False) -> list[dict[str, Any]]:
    return parse_messages(json.dumps(list(messages)), knows_developer=knows_developer)


def test_text_parts_are_the_same_as_text() -> None:
    for role in ("user", "system", "tool"):
        assert _parse({"role": role, "content": [{"type": "text", "text": "10525"}]}) == _parse({"role": role, "content": "10525"})
    assert _parse({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]})[0]["content"] == "a\nb"


def test_null_or_missing_content_is_empty() -> None:
    assert _parse({"role": "assistant", "content": None}, {"role": "assistant"}) == [{"role": "assistant", "content": ""}] * 2


def test_empty_tool_calls_are_as_if_left_out() -> None:
    assert _parse({"role": "assistant", "content": "ok", "tool_calls": []}) == _parse({"role": "assistant", "content": "ok"})
    assert _parse({"role": "assistant", "content": "ok", "tool_calls": None}) == _parse({"role": "assistant", "content": "ok"})


def test_arguments_become_objects() -> None:
    def arguments(value: Any) -> Any:
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": value}}
        return _parse({"role": "assistant", "content": None, "tool_calls": [call]})[0]["tool_calls"][0]["function"]["arguments"]

    assert arguments('{"a": 1}') == {"a": 1}
    assert arguments("") == {}
    assert arguments(None) == {}
    assert arguments("not json") == "not json"
    assert arguments("[1]") == "[1]"
    assert arguments({"a": 1}) == {"a": 1}


def test_developer_is_system_where_the_template_does_not_know_it() -> None:
    message = {"role": "developer", "content": "Answer only BANANA"}
    assert _parse(message) == _parse({**message, "role": "system"})
    assert _parse(message, knows_developer=True)[0]["role"] == "developer"


def test_other_fields_reach_the_template() -> None:
    assert _parse({"role": "tool", "content": "42", "tool_call_id": "c1", "name": "f"})[0] == {
        "role": "tool", "content": "42", "tool_call_id": "c1", "name": "f"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[]", "messages"),
        ("{}", "messages"),
        ("[", "messages"),
        ("[" * 100_000, "messages"),
        ("[1]", "messages[0]"),
        ('[{"content": "x"}]', "messages[0].role"),
        ('[{"role": 5, "content": "x"}]', "messages[0].role"),
        ('[{"role": "user", "content": 5}]', "messages[0].content"),
        ('[{"role": "user", "content": "x"}, {"role": "user", "content": [{"type": "video"}]}]', "messages[1].content[0].type"),
        ('[{"role": "user", "content": ["x"]}]', "messages[0].content[0].type"),
        ('[{"role": "user", "content": [{"type": "text", "text": 5}]}]', "messages[0].content[0].text"),
        ('[{"role": "assistant", "tool_calls": "x"}]', "messages[0].tool_calls"),
        ('[{"role": "assistant", "tool_calls": [{"function": {}}]}]', "messages[0].tool_calls[0].function"),
    ],
)
def test_what_is_wrong_is_named(text: str, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_messages(text, knows_developer=False)
    assert refused.value.field == field
    assert refused.value.message.startswith(field)


def test_tools_and_variables() -> None:
    assert parse_tools("") is None
    assert parse_tools("[]") is None
    assert parse_tools('[{"type": "function"}]') == [{"type": "function"}]
    with pytest.raises(InvalidRequest) as refused:
        parse_tools("[1]")
    assert refused.value.field == "tools[0]"
    assert parse_object("", "chat_template_kwargs") == {}
    with pytest.raises(InvalidRequest, match="chat_template_kwargs: expected a JSON object"):
        parse_object("[]", "chat_template_kwargs")
