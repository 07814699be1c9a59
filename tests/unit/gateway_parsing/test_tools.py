"""Each family's calls, cut into pieces anywhere, end or break off anywhere."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.parsing.events import CallArguments, CallBegin, CallEnd, Content, Event
from gateway.parsing.forced import ArrayParser, NamedParser
from gateway.parsing.plan import ParsePlan
from gateway.parsing.reasoning import reasoning_family
from gateway.parsing.tools import FAMILIES
from gateway.parsing.tools.interface import ToolParser

Found = tuple[str, list[tuple[str, object]]]

_WEATHER = {"city": 'Zürich "old town"', "days": [1, 2], "deep": {"a": None, "b": "}{]["}}
_JSON = json.dumps(_WEATHER, ensure_ascii=False)
_CALLS: list[tuple[str, object]] = [("get_weather", _WEATHER), ("now", {})]

TEXTS: dict[str, list[tuple[str, Found]]] = {
    "hermes": [
        (f'<tool_call>\n{{"name": "get_weather", "arguments": {_JSON}}}\n</tool_call>', ("", _CALLS[:1])),
        (
            f'Let me see.\n<tool_call>{{"name": "get_weather", "arguments": {_JSON}}}</tool_call>\n'
            '<tool_call>{"arguments": {}, "name": "now"}</tool_call>',
            ("Let me see.", _CALLS),
        ),
        ('<tool_call>{"name": "now"}</tool_call>', ("", [("now", {})])),
        ('<tool_call>{"name": "now", "arguments": "{\\"a\\": 1}"}</tool_call>', ("", [("now", {"a": 1})])),
        ("a < b and <tool> is no call", ("a < b and <tool> is no call", [])),
        ("<tool_call>nonsense</tool_call>done", ("done", [])),
        ("plain", ("plain", [])),
    ],
    "llama3": [
        (f'{{"name": "get_weather", "parameters": {_JSON}}}', ("", _CALLS[:1])),
        (f'<|python_tag|>{{"name": "get_weather", "parameters": {_JSON}}}; {{"name": "now", "parameters": {{}}}}', ("", _CALLS)),
        ('{"answer": 42}', ('{"answer": 42}', [])),
        ("{not json", ("{not json", [])),
        ('Sure: {"name": 1}', ('Sure: {"name": 1}', [])),
        ('I look.<|python_tag|>{"name": "now", "parameters": {}}', ("I look.", [("now", {})])),
    ],
    "mistral": [
        (
            f'[TOOL_CALLS][{{"name": "get_weather", "arguments": {_JSON}}}, {{"name": "now", "arguments": {{}}}}]',
            ("", _CALLS),
        ),
        (f"[TOOL_CALLS]get_weather[ARGS]{_JSON}[TOOL_CALLS]now[ARGS]{{}}", ("", _CALLS)),
        ('Look: [TOOL_CALLS] [{"name": "now", "arguments": {}}]', ("Look:", [("now", {})])),
        ("see [TOOL] there", ("see [TOOL] there", [])),
    ],
    "deepseek": [
        (
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
            + _JSON
            + "\n```<｜tool▁call▁end｜>\n"
            + "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            ("", _CALLS),
        ),
        (
            "One moment. <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
            + _JSON
            + "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            ("One moment.", _CALLS[:1]),
        ),
        ("a <｜b｜> c", ("a <｜b｜> c", [])),
    ],
    "pythonic": [
        ("[get_weather(city='Zürich \"old town\"', days=[1, 2], deep={'a': None, 'b': '}{]['}), now()]", ("", _CALLS)),
        ("[1, 2]", ("[1, 2]", [])),
        ("[link](http://x)", ("[link](http://x)", [])),
        ("hello", ("hello", [])),
        ("[now(a=true, b=1.5)]", ("", [("now", {"a": True, "b": 1.5})])),
    ],
}
CASES = [(family, text, found) for family, rows in TEXTS.items() for text, found in rows]


def pieces(text: str, cuts: Iterable[int]) -> list[str]:
    """The text cut at the given places."""
    edges = [0, *sorted({c % (len(text) + 1) for c in cuts}), len(text)]
    return [text[a:b] for a, b in pairwise(edges) if a < b]


def parse(parser: ToolParser, parts: list[str]) -> list[Event]:
    """All events of the parts and the end."""
    events: list[Event] = []
    for part in parts:
        events += parser.feed(part)
    return events + parser.finish()


def found(events: list[Event]) -> Found:
    """Content and whole calls; fails if the calls' pieces do not fit together."""
    content = "".join(e.text for e in events if isinstance(e, Content))
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    whole: list[int] = []
    for event in events:
        if isinstance(event, CallBegin):
            assert event.index == len(names)
            names[event.index] = event.name
            arguments[event.index] = ""
        elif isinstance(event, CallArguments):
            arguments[event.index] += event.text
        elif isinstance(event, CallEnd):
            whole.append(event.index)
    return content, [(names[i], json.loads(arguments[i])) for i in whole]


@pytest.mark.parametrize(("family", "text", "expected"), CASES)
@settings(deadline=None)
@given(cuts=st.lists(st.integers(0, 10_000), max_size=60))
def test_pieces_do_not_matter(family: str, text: str, expected: Found, cuts: list[int]) -> None:
    assert found(parse(FAMILIES[family].make(), pieces(text, cuts))) == expected


@pytest.mark.parametrize(("family", "text", "expected"), CASES)
def test_one_character_at_a_time(family: str, text: str, expected: Found) -> None:
    assert found(parse(FAMILIES[family].make(), list(text))) == expected


@pytest.mark.parametrize(("family", "text", "expected"), [c for c in CASES if c[2][1]])
def test_a_text_that_breaks_off_shows_no_tool_text_and_no_half_call_as_whole(family: str, text: str, expected: Found) -> None:
    content, calls = expected
    for end in range(len(text)):
        parser = FAMILIES[family].make()
        parser.cut = True
        seen, whole = found(parse(parser, [text[:end]]))
        assert whole == calls[: len(whole)]
        assert content.startswith(seen.rstrip())


PLAIN = [("hermes", "5 <"), ("llama3", "{"), ("mistral", "see ["), ("deepseek", "a <"), ("pythonic", "["), ("pythonic", "[now")]


@pytest.mark.parametrize(("family", "text"), PLAIN)
def test_what_a_model_ends_by_itself_is_shown_to_the_last_character(family: str, text: str) -> None:
    assert found(parse(FAMILIES[family].make(), list(text))) == (text, [])


@pytest.mark.parametrize(("family", "text", "expected"), [c for c in CASES if c[2][1]])
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_thought_content_and_calls_cut_anywhere_never_mix(family: str, text: str, expected: Found, data: st.DataObject) -> None:
    plan = ParsePlan(reasoning=reasoning_family("qwen3"), tools=FAMILIES[family])
    whole = f"<think>I weigh {text[:7]} a while</think>\n\n{text}"
    end = data.draw(st.integers(0, len(whole)))
    parser = plan.parser()
    for part in pieces(whole[:end], data.draw(st.lists(st.integers(0, 10_000), max_size=40))):
        parser.feed(part, "maybe")
    parser.finish("maybe", cut=end < len(whole))
    content, thought = "".join(parser.content), "".join(parser.reasoning)
    assert expected[0].startswith(content.rstrip())
    assert f"I weigh {text[:7]} a while".startswith(thought)
    done = [(call.name, json.loads("".join(call.arguments))) for call in parser.calls if call.whole]
    assert done == expected[1][: len(done)]
    if end == len(whole):
        assert (content, done) == expected


def test_arguments_arrive_in_pieces() -> None:
    text = '<tool_call>{"name": "f", "arguments": {"text": "' + "x" * 300 + '"}}</tool_call>'
    parser = FAMILIES["hermes"].make()
    events = [parser.feed(char) for char in text]
    first = next(i for i, found_now in enumerate(events) if found_now)
    assert first < 30
    assert sum(isinstance(e, CallArguments) for found_now in events for e in found_now) > 250


def test_bare_control_characters_become_json() -> None:
    text = '<tool_call>{"name": "f", "arguments": {"text": "a\nb\tc"}}</tool_call>'
    assert found(parse(FAMILIES["hermes"].make(), list(text)))[1] == [("f", {"text": "a\nb\tc"})]


@settings(deadline=None)
@given(cuts=st.lists(st.integers(0, 10_000), max_size=40))
def test_forced_calls(cuts: list[int]) -> None:
    array = f'[{{"name": "get_weather", "parameters": {_JSON}}}, {{"name": "now", "parameters": {{}}}}]'
    assert found(parse(ArrayParser(), pieces(array, cuts))) == ("", _CALLS)
    assert found(parse(NamedParser("get_weather"), pieces(_JSON, cuts))) == ("", _CALLS[:1])


@settings(deadline=None)
@given(text=st.text(), family=st.sampled_from(sorted(TEXTS)))
def test_plain_text_passes(text: str, family: str) -> None:
    parser = FAMILIES[family].make()
    content, calls = found(parse(parser, list(text)))
    if not any(mark in text for mark in "<[{"):
        assert (content.strip(), calls) == (text.strip(), [])
