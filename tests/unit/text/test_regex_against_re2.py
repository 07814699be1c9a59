"""Incremental search finds what RE2 finds in the output so far, at the first piece after which RE2 finds it.

One difference is wanted: text does not end inside an unfinished character, so `$` does not hold there. RE2 is then
asked for a match with one more byte (`\\C`) after it.
"""

from __future__ import annotations

import codecs

import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st

from services.common.text.regex_cursor import RegexCursor
from services.common.text.regex_program import compile_program
from services.common.text.regex_search import RegexSearch
from services.common.text.regex_syntax import parse_regex

OPTIONS = re2.Options()
OPTIONS.log_errors = False

ATOMS = ["a", "b", "é", "東", "🐙", ".", "[ab]", "[^a]", "[^é]"]
ATOMS += [r"\d", r"\w", r"\S", r"\b", r"\B", "^", "$", r"\A", r"\z", r"\n", r"[[:alpha:]é]"]
ATOMS += ["(?s:.)", "(?i:k)", "(?i:É)", r"\x{6771}", r"\Qa.b\E", r"[\]a-]", "(?m:^)", "(?m:$)", r"\pL", r"[^\pL]", r"\141", "{", "a{,2}"]
ATOMS += [r"(?i:[^k])", r"(?i:\W)", r"(?i:[^\W\d])", r"(?i:[j-lé-ü])", r"[\PL\d]", r"[[:^alpha:]]", r"[^-a]"]
ATOMS += [r"(?i:\p{Ll})", r"\p{^Greek}", r"[\x41-\x{43}]"]
SUFFIXES = ["", "", "", "*", "+", "?", "*?", "{2}", "{1,3}", "{2,}"]

regexes = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.tuples(inner, st.sampled_from(SUFFIXES)).map(lambda p: f"({p[0]}){p[1]}"),
        st.lists(inner, min_size=2, max_size=3).map(lambda p: "(?:" + "|".join(p) + ")"),
    ),
    max_leaves=8,
)
pieces = st.lists(
    st.one_of(
        st.text("abkſKσς\u212aé東🐙K \n_1.{,]-É", max_size=4).map(str.encode),
        st.sampled_from([b"\xe6", b"\x9d", b"\xb1", b"\xf0\x9f", b"\x90\x99", b"\xff", b"\xc3", b"\xa9"]),
    ),
    max_size=8,
)


@given(regexes, pieces)
@settings(max_examples=1500, deadline=None)
def test_same_first_piece_and_start_as_re2(regex: str, data: list[bytes]) -> None:
    try:
        oracle = re2.compile(regex.encode(), OPTIONS)
        inside_character = re2.compile(f"(?:{regex})\\C".encode(), OPTIONS)
    except re2.error:
        return
    cursor = RegexCursor(RegexSearch(compile_program(parse_regex(regex))))
    output = b""
    for piece in data:
        if not piece:
            continue
        output += piece
        unfinished = codecs.utf_8_decode(output, "replace", False)[1] < len(output)
        expected = (inside_character if unfinished else oracle).search(output)
        found = cursor.feed(piece)
        if expected is not None:
            if b"\x80" <= output[expected.start() :][:1] < b"\xc0":
                return  # RE2 also finds empty matches between two bytes of one character
            assert found is not None, (regex, output)
            assert found[0] == expected.start(), (regex, output)
            return
        assert found is None, (regex, output, found)


@given(regexes, pieces)
@settings(max_examples=500, deadline=None)
def test_a_match_never_begins_in_text_that_was_let_go(regex: str, data: list[bytes]) -> None:
    try:
        re2.compile(regex, OPTIONS)
    except re2.error:
        return
    cursor = RegexCursor(RegexSearch(compile_program(parse_regex(regex))))
    released = 0
    for piece in filter(None, data):
        found = cursor.feed(piece)
        if found is not None:
            assert found[0] >= released, (regex, data)
            return
        assert cursor.open_from >= released
        released = cursor.open_from


@pytest.mark.parametrize(
    ("regex", "text", "start"),
    [
        (r"\n\n#", "one\n\n# two", 3),
        (r"(?i)stop", "do StOp", 3),
        (r"\d{3}-\d{4}", "call 555-1234 now", 5),
        (r"(?P<name>x+)y", "..xxy", 2),
        (r"[^\n]*END", "ab\ncd END", 3),
        (r"(?im)^end$", "a\nEnd\nb", 2),
    ],
)
def test_examples(regex: str, text: str, start: int) -> None:
    cursor = RegexCursor(RegexSearch(compile_program(parse_regex(regex))))
    found = None
    for character in text:
        found = found or cursor.feed(character.encode())
    assert found is not None
    assert found[0] == start
