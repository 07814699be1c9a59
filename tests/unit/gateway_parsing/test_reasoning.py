"""Thoughts apart from answers, wherever the stream is cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.flight.spec import Thought, ThoughtAt
from gateway.parsing.events import Content, Reasoning
from gateway.parsing.plan import ParsePlan
from gateway.parsing.reasoning import reasoning_family
from gateway.parsing.reasoning.beginning import at_end_of, in_text
from gateway.parsing.tools import tool_family

CASES = [
    ("qwen3", "<think>\nhm, 2 < 3\n</think>\n\nFour.", "hm, 2 < 3", "Four."),
    ("qwen3", "Four.", "", "Four."),
    ("qwen3", "<think>\n\n</think>\n\nFour.", "", "Four."),
    ("qwen3", "<think>never ends", "never ends", ""),
    ("qwen3", "a <think> later", "", "a <think> later"),
    ("deepseek-r1", "hm</think>\nFour.", "hm", "Four."),
    ("deepseek-r1", "<think>hm</think>Four. </think>", "hm", "Four. </think>"),
    ("deepseek-r1", "still thinking", "still thinking", ""),
]


@pytest.mark.parametrize(("family", "text", "thought", "answer"), CASES)
@settings(deadline=None)
@given(cuts=st.lists(st.integers(0, 100), max_size=20))
def test_split(family: str, text: str, thought: str, answer: str, cuts: list[int]) -> None:
    parser = ParsePlan(reasoning=reasoning_family(family)).parser()
    edges = [0, *sorted({c % (len(text) + 1) for c in cuts}), len(text)]
    events = [e for a, b in pairwise(edges) if a < b for e in parser.feed(text[a:b])] + parser.finish()
    assert "".join(e.text for e in events if isinstance(e, Reasoning)) == thought
    assert "".join(e.text for e in events if isinstance(e, Content)) == answer
    assert "".join(parser.reasoning) == thought


def test_thought_answer_and_call_are_three_channels() -> None:
    plan = ParsePlan(reasoning=reasoning_family("qwen3"), tools=tool_family("hermes"))
    parser = plan.parser()
    text = '<think>call <tool_call> now</think>\nI ask.\n<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    for char in text:
        parser.feed(char)
    parser.finish()
    assert "".join(parser.reasoning) == "call <tool_call> now"
    assert "".join(parser.content) == "I ask."
    assert [(call.name, "".join(call.arguments), call.whole) for call in parser.calls] == [("f", '{"a": 1}', True)]


def test_not_separated_leaves_the_text_alone() -> None:
    parser = ParsePlan(reasoning=reasoning_family("qwen3"), separate_reasoning=False).parser()
    parser.feed("<think>hm</think>Four.")
    parser.finish()
    assert "".join(parser.content) == "<think>hm</think>Four."


@pytest.mark.parametrize("family", ["qwen3", "deepseek-r1"])
@pytest.mark.parametrize(
    ("at", "text", "thought", "answer"),
    [
        ("inside", "hm</think>Four.", "hm", "Four."),
        ("inside", "<think>hm</think>Four.", "hm", "Four."),
        ("after", "Four. <think>", "", "Four. <think>"),
        ("after", "<think>", "", "<think>"),
        ("maybe", "<think>hm</think>Four.", "hm", "Four."),
        ("maybe", "Four.", "", "Four."),
    ],
)
def test_what_the_prompt_has_begun_counts_more_than_the_family(family: str, at: ThoughtAt, text: str, thought: str, answer: str) -> None:
    for parts in ([text], list(text)):
        parser = ParsePlan(reasoning=reasoning_family(family)).parser()
        for part in parts:
            parser.feed(part, at)
        parser.finish(at)
        assert ("".join(parser.reasoning), "".join(parser.content)) == (thought, answer)


BEGIN, END = [7], [8, 9]
TAGS = Thought("<think>", "</think>", "maybe", awaited=True)


@pytest.mark.parametrize(
    ("prompt", "at"),
    [
        ([1, 2, 7], "inside"),
        ([1, 2, 7, 3], "inside"),
        ([1, 8, 9], "after"),
        ([7, 3, 8, 9, 3], "after"),
        ([7, 3, 8, 9, 3, 4, 5], "maybe"),
        ([1, 2, 3], "maybe"),
        ([9], "maybe"),
        ([], "maybe"),
    ],
)
def test_where_a_prompt_leaves_the_answer(prompt: list[int], at: str) -> None:
    assert at_end_of(prompt, TAGS, BEGIN, END) == at


def test_where_a_begun_answer_goes_on() -> None:
    cases = {"<think>a": "inside", "<think>a</think>b": "after", "b": "after", "": "maybe"}
    assert {text: in_text(text, TAGS) for text in cases} == cases


def test_a_thought_in_one_piece() -> None:
    parser = ParsePlan(reasoning=reasoning_family("qwen3"), stream_reasoning=False).parser()
    events = [event for char in "<think>hm, hm</think>Four." for event in parser.feed(char)] + parser.finish()
    assert events[0] == Reasoning("hm, hm")
    assert "".join(e.text for e in events[1:] if isinstance(e, Content)) == "Four."
    parser = ParsePlan(reasoning=reasoning_family("qwen3"), stream_reasoning=False).parser()
    assert [*parser.feed("<think>hm, "), *parser.feed("hm"), *parser.finish(cut=True)] == [Reasoning("hm, hm")]


@pytest.mark.parametrize(("text", "thought"), [("<thi", ""), ("<think>hm</thi", "hm")])
def test_a_tag_that_breaks_off_is_no_text(text: str, thought: str) -> None:
    parser = ParsePlan(reasoning=reasoning_family("qwen3")).parser()
    parser.feed(text)
    parser.finish(cut=True)
    assert ("".join(parser.reasoning), "".join(parser.content)) == (thought, "")


@pytest.mark.parametrize("separate", [True, False])
def test_a_thought_that_is_not_wanted(separate: bool) -> None:
    parser = ParsePlan(reasoning=reasoning_family("qwen3"), separate_reasoning=separate, include_reasoning=False).parser()
    events = [event for char in "<think>hm</think>Four." for event in parser.feed(char)] + parser.finish()
    assert "".join(e.text for e in events if isinstance(e, Content)) == "Four."
    assert not any(isinstance(e, Reasoning) for e in events) and parser.thought
