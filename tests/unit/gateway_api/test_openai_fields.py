"""The table of fields is complete, and it is what the doors do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args, get_type_hints

import pytest
from openai.types import completion_create_params as completion
from openai.types.chat import chat_completion_tool_choice_option_param as tool_choice
from openai.types.chat import completion_create_params as chat

from gateway.api.schema import openai_fields as fields
from gateway.api.schema.chat import read_chat
from gateway.api.schema.completions import read_completion
from gateway.api.schema.limits import Defaults
from services.common.errors import InvalidRequest

CHAT = (fields.CHAT_HONOURED, fields.CHAT_REFUSED, fields.CHAT_WITHOUT_EFFECT)
COMPLETION = (fields.COMPLETION_HONOURED, fields.COMPLETION_REFUSED, fields.COMPLETION_WITHOUT_EFFECT)
DEFAULTS = Defaults(model="m", request_id="r")
CHAT_BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}]}
COMPLETION_BODY: dict[str, Any] = {"prompt": "x"}


def test_every_field_of_the_published_interfaces_is_in_one_table() -> None:
    for params, tables in (
        (chat.CompletionCreateParamsBase, CHAT),
        (completion.CompletionCreateParamsBase, COMPLETION),
    ):
        for name in {*params.__annotations__, "stream"}:
            assert sum(name in table for table in tables) == 1, name


def _kinds(union: Any) -> set[str]:
    """The values of `type` over the members of a union of the client's types."""
    members = [member for member in get_args(union) if hasattr(member, "__annotations__")]
    return {kind for member in members for kind in get_args(get_type_hints(member)["type"])}


def test_every_published_kind_of_tool_choice_and_response_format_has_an_answer() -> None:
    function = {"type": "function", "function": {"name": "f"}}
    choices: dict[str, Any] = {
        "function": function,
        "allowed_tools": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [function]}},
        "custom": {"type": "custom", "custom": {"name": "f"}},
    }
    assert _kinds(tool_choice.ChatCompletionToolChoiceOptionParam) == set(choices)
    for kind, choice in choices.items():
        body = {**CHAT_BODY, "tools": [function], "tool_choice": choice}
        if kind == "custom":
            with pytest.raises(InvalidRequest) as caught:
                read_chat(body, DEFAULTS)
            assert caught.value.field == "tool_choice"
        else:
            assert read_chat(body, DEFAULTS).plan.tool_names == ("f",)
    assert _kinds(chat.ResponseFormat) == {"text", "json_schema", "json_object"}


def test_no_field_is_in_two_tables() -> None:
    for tables in (CHAT, COMPLETION):
        names = [name for table in tables for name in table]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("name", sorted(fields.CHAT_REFUSED))
def test_refused_by_name_in_chat(name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_chat({**CHAT_BODY, name: 3}, DEFAULTS)
    assert caught.value.field == name


@pytest.mark.parametrize("name", sorted(fields.COMPLETION_REFUSED))
def test_refused_by_name_in_completions(name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_completion({**COMPLETION_BODY, name: 3}, DEFAULTS)
    assert caught.value.field == name


def test_fields_without_effect_change_nothing() -> None:
    plain = read_chat(CHAT_BODY, DEFAULTS)
    values: dict[str, Any] = {"store": False, "modalities": ["text"]}
    loaded = {name: values.get(name, {"a": 1}) for name in fields.CHAT_WITHOUT_EFFECT}
    assert read_chat({**CHAT_BODY, **loaded, "unheard_of": 1}, DEFAULTS) == plain
    loaded = dict.fromkeys(fields.COMPLETION_WITHOUT_EFFECT, "x")
    assert read_completion({**COMPLETION_BODY, **loaded}, DEFAULTS) == read_completion(COMPLETION_BODY, DEFAULTS)


def test_null_is_the_same_as_absent() -> None:
    nothing = dict.fromkeys(name for table in CHAT for name in table if name != "messages")
    assert read_chat({**CHAT_BODY, **nothing}, DEFAULTS) == read_chat(CHAT_BODY, DEFAULTS)
    nothing = dict.fromkeys(name for table in COMPLETION for name in table if name != "prompt")
    assert read_completion({**COMPLETION_BODY, **nothing}, DEFAULTS) == read_completion(COMPLETION_BODY, DEFAULTS)


_CHANGES: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.5,
    "frequency_penalty": 1,
    "presence_penalty": 1,
    "logit_bias": {"5": 1},
    "seed": 5,
    "sampling_seed": 6,
    "stop": ["x"],
    "n": 2,
    "stream": True,
    "response_format": {"type": "json_object"},
    "prompt_cache_key": "k",
    "max_completion_tokens": 5,
    "max_tokens": 5,
    "logprobs": True,
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "top_k": 5,
    "min_p": 0.1,
    "repetition_penalty": 1.5,
    "min_tokens": 2,
    "stop_token_ids": [5],
    "stop_regex": ["a"],
    "ignore_eos": True,
    "no_stop_trim": True,
    "include_stop_str_in_output": True,
    "skip_special_tokens": False,
    "spaces_between_special_tokens": True,
    "json_schema": "{}",
    "regex": "a",
    "ebnf": 'root ::= "a"',
    "structural_tag": "{}",
    "guided_json": {"type": "object"},
    "guided_regex": "a",
    "guided_grammar": 'root ::= "a"',
    "guided_choice": ["a"],
    "structured_outputs": {"json": {"type": "object"}},
    "add_special_tokens": False,
    "rid": "x",
    "priority": 1,
    "extra_key": "k",
    "cache_salt": "s",
    "routing_key": "k",
    "timeout": 5,
    "stream_interval": 3,
    "custom_logit_processor": "allowed_token_ids",
    "chat_template": "x",
    "chat_template_kwargs": {"a": 1},
    "add_generation_prompt": False,
}
_TOOLS: dict[str, Any] = {"tools": _CHANGES["tools"]}
_ASSISTANT_LAST: list[Any] = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
_BESIDE: dict[str, tuple[dict[str, Any], Any]] = {
    "stream_options": ({"stream": True}, {"include_usage": True}),
    "top_logprobs": ({"logprobs": True}, 2),
    "tool_choice": (_TOOLS, "required"),
    "parallel_tool_calls": ({**_TOOLS, "tool_choice": "required"}, False),
    "continue_final_message": ({"messages": _ASSISTANT_LAST}, True),
    "separate_reasoning": ({}, False),
    "stream_reasoning": ({}, False),
    "include_reasoning": ({}, False),
    "schema_check": ({"json_schema": {"type": "array", "uniqueItems": True}}, "after"),
    "messages": ({}, [{"role": "user", "content": "z"}]),
    "model": ({}, "other"),
    "prompt": ({}, "y"),
    "echo": ({}, True),
    "custom_params": ({"custom_logit_processor": "allowed_token_ids"}, {"token_ids": [1]}),
    "best_of": ({"n": 2}, 1),
}
"""Fields that change nothing alone: what stands beside them, and their value."""


def test_every_honoured_field_changes_the_request() -> None:
    with_parsers = replace(DEFAULTS, reasoning_parser="qwen3", tool_call_parser="hermes")
    for read, body, honoured in (
        (read_chat, CHAT_BODY, fields.CHAT_HONOURED),
        (read_completion, COMPLETION_BODY, fields.COMPLETION_HONOURED),
    ):
        for name in honoured:
            beside, value = _BESIDE[name] if name in _BESIDE else ({}, _CHANGES[name])
            if name == "logprobs" and read is read_completion:
                value = 1
            plain = read({**body, **beside}, with_parsers)
            try:
                changed = read({**body, **beside, name: value}, with_parsers) != plain
            except InvalidRequest as refused:
                changed = refused.field == name == "best_of"
            assert changed, name
