"""Regexes mean the same in every backend: what RE2 matches, over all short texts of a small alphabet."""

from __future__ import annotations

import itertools
import json
import re as python_re

import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.grammar.interface import GrammarKind, InvalidGrammar
from services.scheduler.grammar.regex_text import BadRegex, lengths, parse_search, parse_whole, write
from tests.unit.grammar.following import NAMES, admits, compiled, matcher

ALPHABET = "ab^é"
TEXTS = ["".join(letters) for count in range(4) for letters in itertools.product(ALPHABET, repeat=count)]

atoms = st.sampled_from(["a", "b", "é", "ab", "[ab]", "[^a]", r"[\^a]", "[^b-z]", r"\^", ".", "(?i:A)", "", r"[_-\x{60}\^]"])
suffixes = st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,2}", "{0,2}", "{2,}", "{0}"])
regexes = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.tuples(inner, suffixes).map(lambda pair: f"({pair[0]}){pair[1]}"),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: "(" + "|".join(parts) + ")"),
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("name", NAMES)
@given(regex=regexes)
@settings(max_examples=60, deadline=None)
def test_a_constraint_is_the_whole_text(name: str, regex: str) -> None:
    oracle = re2.compile(regex)
    expected = {text for text in TEXTS if oracle.fullmatch(text)}
    try:
        grammar = compiled(name, GrammarKind.REGEX, regex)
    except InvalidGrammar:
        assert expected in (set(), {""})
        return
    assert {text for text in TEXTS if admits(grammar.matcher(), text)} == expected


@pytest.mark.parametrize("name", NAMES)
@given(regex=regexes, start=st.sampled_from(["", "^"]), end=st.sampled_from(["", "$"]))
@settings(max_examples=60, deadline=None)
def test_a_pattern_is_searched_for(name: str, regex: str, start: str, end: str) -> None:
    pattern = f"{start}{regex}{end}"
    oracle = re2.compile(pattern)
    expected = {text for text in TEXTS if oracle.search(text)}
    schema = json.dumps({"type": "string", "pattern": pattern})
    try:
        grammar = compiled(name, GrammarKind.JSON_SCHEMA, schema)
    except InvalidGrammar:
        assert expected in (set(), {""})
        return
    assert {text for text in TEXTS if admits(grammar.matcher(), json.dumps(text, ensure_ascii=False))} == expected


@given(regex=regexes)
@settings(max_examples=300, deadline=None)
def test_what_is_written_says_the_same(regex: str) -> None:
    in_re2_spelling = python_re.sub(r"\\u(?:\{([0-9a-f]+)\}|([0-9a-f]{4}))", r"\\x{\1\2}", write(parse_whole(regex)))
    oracle, written = re2.compile(regex), re2.compile(in_re2_spelling)
    assert [t for t in TEXTS if oracle.fullmatch(t)] == [t for t in TEXTS if written.fullmatch(t)]


@given(regex=regexes)
@settings(max_examples=300, deadline=None)
def test_lengths_bound_every_text(regex: str) -> None:
    least, most = lengths(parse_whole(regex))
    oracle = re2.compile(regex)
    matched = [len(text) for text in TEXTS if oracle.fullmatch(text)]
    assert all(least <= length and (most is None or length <= most) for length in matched)
    assert not matched or least == min(matched)


@pytest.mark.parametrize("character", [chr(code) for code in range(0x20, 0x7F)])
def test_every_character_stands_for_itself(character: str) -> None:
    escaped = re2.escape(character)
    for regex in (f"x{escaped}", f"(q|x[{escaped}])", f"(x{escaped}y)?z|x{escaped}"):
        start = matcher("xgrammar", GrammarKind.REGEX, regex)
        assert admits(start, f"x{character}")
        other = "!" if character != "!" else "?"
        assert not admits(matcher("xgrammar", GrammarKind.REGEX, regex), f"x{other}")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("regex", "said"),
    [
        ("foo**", r"\*\*"),
        ("(", "missing \\)"),
        ("a{2,1}", "repetition"),
        ("(?<=x)y", "perl operator"),
        (r"\1", "escape"),
        ("", "empty"),
        (r"a\bc", r"\\b"),
        ("a$b", r"\\z"),
        ("(^a|b$)c", r"\\A"),
        (r"\C", "one byte"),
        ("x" * 5000, "4096"),
        (r"[^\x{0}-\x{10FFFF}]", "RE2 accepts|matches nothing"),
    ],
)
def test_refused_regexes_say_what_is_wrong(name: str, regex: str, said: str) -> None:
    with pytest.raises(InvalidGrammar, match=said) as refused:
        matcher(name, GrammarKind.REGEX, regex)
    assert refused.value.field == "regex"


def test_nesting_is_bounded() -> None:
    with pytest.raises(BadRegex):
        parse_search("(" * 1500 + ")" * 1500)
