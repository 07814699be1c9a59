"""Thoughts apart from answers, wherever the stream is cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.parsing.events import Content, Reasoning
from gateway.parsing.plan import ParsePlan
from gateway.parsing.reasoning import reasoning_family
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
