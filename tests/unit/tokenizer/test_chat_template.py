"""Templates render as transformers renders them, inside bounds, and their refusals reach the user."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from services.common.errors import InvalidRequest
from services.common.text.errors import TokenizerUnavailable
from services.common.text.tokenizer_files import find_tokenizer
from services.tokenizer.chat_template import ChatInput, ChatTemplate, RenderLimits, load_templates
from tests.unit.text.tokenizers_fixture import specs, write_folder

LIMITS = RenderLimits(seconds=5.0, text_bytes=100_000)
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
HI = [{"role": "user", "content": "hi"}]

CHATML = (
    "{%- for message in messages %}\n    {{- '<|' + message.role + '|>' + message.content + eos_token }}\n{% endfor %}\n"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
TOOLED = (
    "{{ bos_token }}{% if tools %}{{ tools | tojson(indent=2) }}{% endif %}{% for m in messages %}"
    "{% if m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.name }}={{ c.function.arguments | tojson }}{% endfor %}"
    "{% elif m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content | trim }}{% endif %}"
    "{% if loop.index > 9 %}{% break %}{% endif %}{% endfor %}{{ thinking | default(false) }}"
)


def _template(source: str) -> ChatTemplate:
    return ChatTemplate(source, SPECIAL, origin="test")


def _render(source: str, messages: list[dict[str, Any]] = HI, **chat: Any) -> str:
    return _template(source).render(ChatInput(messages, **chat), LIMITS)


def _transformers(source: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, **variables: Any) -> str:
    from transformers.utils.chat_template_utils import render_jinja_template

    every: dict[str, Any] = {"tools": tools, "chat_template": source, "add_generation_prompt": True, **SPECIAL, **variables}
    rendered = render_jinja_template([messages], **every)
    return str(rendered[0][0])


@pytest.mark.parametrize("source", [CHATML, TOOLED])
def test_equal_to_transformers(source: str) -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": "naïve <b>", "parameters": {"type": "object"}}}]
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": "é", "b": [1, None]}}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": " be kind "},
        {"role": "user", "content": "hi\n"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "42"},
        {"role": "assistant", "content": "done"},
    ]
    ours = _render(source, messages, tools=tools, variables={"thinking": True})
    assert ours == _transformers(source, messages, tools, thinking=True)


def test_a_refusal_carries_the_templates_own_sentence() -> None:
    with pytest.raises(InvalidRequest, match="no system here") as refused:
        _render("{{ raise_exception('no system here') }}")
    assert refused.value.field == "messages"


@pytest.mark.parametrize("source", ["{{ messages[5].content }}", "{{ messages[0].content + 5 }}", "{{ none_such() }}", "{{ 1 / 0 }}"])
def test_a_template_that_cannot_is_a_bad_request(source: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot render these messages"):
        _render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% for a in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
        "{{ 'x' * 100000000 }}",
        "{{ 9 ** 9999999 }}",
        "{{ [0] * 100000000 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ range(10000000) | list | length }}",
    ],
)
def test_hostile_templates_end_soon(source: str) -> None:
    with pytest.raises(InvalidRequest):
        _template(source).render(ChatInput(HI), RenderLimits(seconds=0.2, text_bytes=100_000))


def test_reserved_variables() -> None:
    for name in ("messages", "tools", "add_generation_prompt"):
        with pytest.raises(InvalidRequest) as refused:
            _render(CHATML, variables={name: 1})
        assert refused.value.field == f"chat_template_kwargs.{name}"


def test_continuing_the_last_message() -> None:
    messages = [*HI, {"role": "assistant", "content": "The answer is "}]
    text = _render(CHATML, messages, add_generation_prompt=False, continue_final_message=True)
    assert text == "<|user|>hi</s>\n<|assistant|>The answer is "
    with pytest.raises(InvalidRequest, match="assistant's"):
        _render(CHATML, HI, add_generation_prompt=False, continue_final_message=True)
    with pytest.raises(InvalidRequest, match="excludes"):
        _render(CHATML, messages, add_generation_prompt=True, continue_final_message=True)
    with pytest.raises(InvalidRequest, match="does not show"):
        _render("nothing", messages, add_generation_prompt=False, continue_final_message=True)


def test_where_templates_are_found(tmp_path: Path) -> None:
    files = find_tokenizer(write_folder(tmp_path, specs()["llama"]))
    with pytest.raises(InvalidRequest, match="no chat template"):
        load_templates(files).choose(False)
    named = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]
    config = {"bos_token": {"content": "<s>"}, "chat_template": named}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    templates = load_templates(files)
    assert templates.special_tokens == {"bos_token": "<s>"}
    assert [templates.choose(has_tools).render(ChatInput(HI), LIMITS) for has_tools in (False, True)] == ["D", "T"]
    (tmp_path / "chat_template.jinja").write_text("own")
    assert load_templates(files).choose(False).render(ChatInput(HI), LIMITS) == "own"
    override = tmp_path / "override.jinja"
    override.write_text("over")
    assert load_templates(files, str(override)).choose(True).render(ChatInput(HI), LIMITS) == "over"
    override.write_text("{% for %}")
    with pytest.raises(TokenizerUnavailable, match=r"override\.jinja"):
        load_templates(files, str(override))
    with pytest.raises(TokenizerUnavailable, match="absent"):
        load_templates(files, str(tmp_path / "absent"))


def test_dates_are_those_of_today() -> None:
    assert len(_render("{{ strftime_now('%Y-%m-%d') }}")) == 10
