"""Stop matching: equal to a naive search after every token, however tokens are grouped, with and without a resume."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.common.errors import InvalidRequest
from services.common.text.stop_matcher import StopCursor, StopMatch, StopMatcher
from services.common.text.stop_set import NO_STOPS, compile_stops
from services.common.text.token_bytes import OutputBytes, TokenBytes

PIECES = [b"a", b"b", b"ab", b"ba", b"abc", b"c\n", b"", b"\xe6", b"\x9d\xb1", "東".encode(), b"<end>", b"END", b"E", b"N", b"D!"]
TABLE = TokenBytes(PIECES)

ids_lists = st.lists(st.integers(0, len(PIECES) - 1), max_size=24)
string_lists = st.lists(st.text("abcEND東\n", min_size=1, max_size=5), max_size=5)
regex_lists = st.lists(st.sampled_from(["a+b", "[^a]c", "東?E", "a.*c", r"\n", "(?i)end", "b{2}"]), max_size=2)


def _matcher(strings: list[str], regexes: list[str]) -> StopMatcher:
    return StopMatcher(compile_stops(strings, regexes), OutputBytes(TABLE))


def _naive(strings: list[str], ids: list[int]) -> tuple[int, int, int] | None:
    """(token index, keep_bytes, stop index) by looking for everything in the whole output after every token."""
    for count in range(1, len(ids) + 1):
        output = b"".join(PIECES[i] for i in ids[:count])
        found = [(output.find(s.encode()), index) for index, s in enumerate(strings)]
        hits = [(start, -len(strings[index].encode()), index) for start, index in found if start >= 0]
        if hits:
            start, length, _ = min(hits)
            return count - 1, start, next(i for s, n, i in sorted(hits, key=lambda h: h[2]) if (s, n) == (start, length))
    return None


@given(string_lists, ids_lists)
@settings(max_examples=800, deadline=None)
def test_strings_equal_a_naive_search(strings: list[str], ids: list[int]) -> None:
    match = _matcher(strings, []).feed(ids)
    expected = _naive(strings, ids)
    if expected is None or match is None:
        assert match is None
        assert expected is None
        return
    assert (match.token_index, match.keep_bytes) == expected[:2]
    matched = strings[match.stop_index or 0].encode()
    assert b"".join(PIECES[i] for i in ids)[match.keep_bytes : match.end_bytes] == matched


def _grouped(strings: list[str], regexes: list[str], ids: list[int], size: int, seam: int) -> tuple[int, StopMatch] | None:
    """Feed `seam` ids as prior output at once, then the rest in steps of `size`."""
    matcher = _matcher(strings, regexes)
    steps = [ids[:seam], *(ids[at : at + size] for at in range(seam, len(ids), size))]
    done = 0
    for step in steps:
        match = matcher.feed(step)
        if match is not None:
            return done + match.token_index, match
        done += len(step)
    return None


@given(string_lists, regex_lists, ids_lists, st.integers(0, 24))
@settings(max_examples=500, deadline=None)
def test_grouping_and_resume_do_not_matter(strings: list[str], regexes: list[str], ids: list[int], seam: int) -> None:
    expected = _grouped(strings, regexes, ids, 1, 0)
    for size in range(1, 9):
        found = _grouped(strings, regexes, ids, size, min(seam, len(ids)))
        if expected is None or found is None:
            assert found is expected
            continue
        assert found[0] == expected[0]
        assert (found[1].keep_bytes, found[1].end_bytes) == (expected[1].keep_bytes, expected[1].end_bytes)
        assert (found[1].stop_index, found[1].regex_index) == (expected[1].stop_index, expected[1].regex_index)


@given(string_lists, regex_lists, ids_lists)
@settings(max_examples=500, deadline=None)
def test_no_match_begins_before_what_was_let_go(strings: list[str], regexes: list[str], ids: list[int]) -> None:
    cursor = StopCursor(compile_stops(strings, regexes))
    released = 0
    for token_id in ids:
        match = cursor.feed(PIECES[token_id])
        if match is not None:
            assert match.keep_bytes >= released
            return
        assert released <= cursor.hold_from <= cursor.position
        released = cursor.hold_from


def test_several_matches_in_one_token_the_first_to_begin_wins() -> None:
    assert _matcher(["c\n", "b", "abc"], []).feed([4]) == StopMatch(0, 0, 3, stop_index=2)
    assert _matcher(["b", "a"], []).feed([2]) == StopMatch(0, 0, 1, stop_index=1)
    assert _matcher(["ab", "ab"], ["ab"]).feed([2]) == StopMatch(0, 0, 2, stop_index=0)
    assert _matcher(["b"], ["ab"]).feed([2]) == StopMatch(0, 0, 2, regex_index=0)


def test_a_match_over_tokens_and_the_bytes_kept() -> None:
    match = _matcher(["END"], []).feed([0, 12, 13, 14, 0])
    assert match == StopMatch(3, 1, 4, stop_index=0)


def test_the_match_can_be_overruled_and_the_next_one_is_found() -> None:
    matcher = _matcher(["b"], [])
    assert matcher.feed([1]) is not None
    assert matcher.feed([0]) is None
    match = matcher.feed([0, 1])
    assert match is not None
    assert (match.token_index, match.keep_bytes) == (1, 3)


@pytest.mark.parametrize("regex", ["(?<=x)y", r"\1", "foo**", "(", "a{2,1}", "", "a*", r"\C", "(.{1,100}x){1,9}", "[", "a\ud800"])
def test_refused_regexes_name_the_field(regex: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        compile_stops([], ["ok", regex], regexes_field="sampling_params.stop_regex")
    assert refused.value.field == "sampling_params.stop_regex[1]"
    assert "sampling_params.stop_regex[1]" in refused.value.message


def test_refused_strings_name_the_field() -> None:
    for strings, field in ((["x", ""], "stop[1]"), (["x"] * 33, "stop"), (["x" * 4097], "stop[0]"), (["\ud800"], "stop[0]")):
        with pytest.raises(InvalidRequest) as refused:
            compile_stops(strings)
        assert refused.value.field == field
    with pytest.raises(InvalidRequest, match="256"):
        compile_stops([], ["x" * 257])
    assert not compile_stops([], [])
    assert NO_STOPS.strings is None
