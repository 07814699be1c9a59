"""Simpler regexes say the same, and the ones that are dear to follow for their loops alone become cheap ones."""

from __future__ import annotations

import itertools
import re

import pytest
import re2
from hypothesis import example, given, settings

from services.scheduler.grammar.regex_text import BadRegex, parse_whole, write
from tests.unit.grammar.test_regex_text import regexes

TEXTS = ["".join(letters) for count in range(7) for letters in itertools.product("ab", repeat=count)]


@settings(max_examples=300, deadline=None)
@given(regex=regexes)
@example("(a{2,3}){2,3}")
@example("(a{3,4}){0,2}")
@example("((ab){2,}){0,2}b")
@example("a*aa{2}a?")
@example("(a?b?|(ab)*)*b")
@example("((a+)+b)+")
@example("((a|)(|b)){2}")
def test_the_same_texts_match(regex: str) -> None:
    try:
        simple = write(parse_whole(regex))
    except BadRegex:
        return
    before, after = re2.compile(regex), re2.compile(re.sub(r"\\u(?:\{(\w+)\}|(\w{4}))", r"\\x{\1\2}", simple))
    assert [text for text in TEXTS if bool(before.fullmatch(text)) != bool(after.fullmatch(text))] == []


@pytest.mark.parametrize(
    ("regex", "simple"),
    [
        ("(a*)*", "a*"),
        ("((a*)*)*b", "a*b"),
        ("(a+)+", "a+"),
        ("(a?){500}", "a{0,500}"),
        ("(a?){500}a{500}", "a{500,1000}"),
        ("(a*a*a*a*a*)*b", "a*b"),
        ("((a{1,3}){1,3}){1,100}", "a{1,900}"),
        ("(a*){100}", "a*"),
        ("((((a?)*)*)*)*", "a*"),
        ("(a|a|[ab])*", "[ab]*"),
        ("(a*|b?|(a|b)+)*", "[ab]*"),
        ("(a{2}){2}", "a{4}"),
        ("(a{2,3}){2}", "a{4,6}"),
        ("(ab)+(ab)*", "(ab)+"),
        ("aa", "aa"),
        ("(a{2})*", "(a{2})*"),
    ],
)
def test_loops_in_loops_are_one_loop(regex: str, simple: str) -> None:
    assert write(parse_whole(regex)) == write(parse_whole(simple)) == _plainly(simple)


def _plainly(simple: str) -> str:
    """As `write` puts what may be absent."""
    return {"a*": "(a+|)", "a*b": "(a+|)b", "[ab]*": "([a-b]+|)", "a{0,500}": "(a{1,500}|)", "(a{2})*": "((a{2})+|)"}.get(simple, simple)
