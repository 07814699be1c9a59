"""One choice's text: joined pieces are the whole decode, stops never leak, grouping and resume change nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from services.common.errors import InvalidRequest
from services.common.text.stop_matcher import StopMatch, StopMatcher
from services.common.text.stop_set import compile_stops
from services.common.text.token_bytes import OutputBytes, TokenBytes
from services.common.text.tokenizer_files import find_tokenizer, load_token_bytes
from services.common.text.utf8 import decode_all
from services.detokenizer.hold_back import HoldBack
from services.detokenizer.incremental import MOST_BYTES_AT_ONCE, ChoiceText
from tests.unit.text.tokenizers_fixture import specs, write_folder

PIECES = [b"a", b"b", b"ab", b"EN", b"D", b"END", b"!", b"c\n", b"\xe6", b"\x9d\xb1", "東🐙".encode(), b"\xff", b"x" * 9, b"</s>"]
TABLE = TokenBytes(PIECES, special_ids=frozenset({13}), added_ids=frozenset({13}))

ids_lists = st.lists(st.integers(0, len(PIECES)), max_size=24)
string_lists = st.lists(st.sampled_from(["END", "ab", "b東", "aba", "\n", "xxx!"]), max_size=3)
regex_lists = st.lists(st.sampled_from(["a+b", "東?E", "x+!", "(?i)end"]), max_size=2)


def _choice(strings: list[str], regexes: list[str] | None = None, *, keep_stop: bool = False, pieces: bool = False) -> ChoiceText:
    stops = compile_stops(strings, regexes or [])
    hold = HoldBack(stops, keep_stop=keep_stop) if stops else None
    return ChoiceText(TABLE, OutputBytes(TABLE), hold, want_pieces=pieces)


def _raw(ids: list[int]) -> bytes:
    output = OutputBytes(TABLE)
    return b"".join(output.piece(i) for i in ids)


def _scheduler_end(strings: list[str], regexes: list[str], ids: list[int]) -> tuple[int, StopMatch | None]:
    """(ids the scheduler sends, its match) when it stops at the first match."""
    match = StopMatcher(compile_stops(strings, regexes), OutputBytes(TABLE)).feed(ids)
    return (len(ids), None) if match is None else (match.token_index + 1, match)


def _stream(choice: ChoiceText, ids: list[int], sizes: list[int], at: int = 0) -> str:
    text = ""
    step = 0
    while at < len(ids):
        size = sizes[step % len(sizes)]
        choice.push(ids[at : at + size])
        at, step = at + size, step + 1
        text += choice.take()
    return text


def _finish(choice: ChoiceText, keep_bytes: int | None) -> str:
    choice.close(flush=True, keep_bytes=keep_bytes)
    text = choice.take()
    assert choice.finished
    return text


@given(string_lists, regex_lists, ids_lists, st.lists(st.integers(1, 8), min_size=1, max_size=4))
@settings(max_examples=1000, deadline=None)
def test_streamed_text_is_the_raw_output_up_to_the_schedulers_stop(
    strings: list[str], regexes: list[str], ids: list[int], sizes: list[int]
) -> None:
    count, match = _scheduler_end(strings, regexes, ids)
    choice = _choice(strings, regexes)
    text = _stream(choice, ids[:count], sizes)
    text += _finish(choice, match.keep_bytes if match else None)
    raw = _raw(ids[:count])
    assert text == decode_all(raw[: match.keep_bytes] if match else raw)


@given(string_lists, regex_lists, ids_lists, st.integers(0, 24), st.lists(st.integers(1, 8), min_size=1, max_size=4), st.booleans())
@settings(max_examples=1000, deadline=None)
def test_a_seam_is_not_visible(
    strings: list[str], regexes: list[str], ids: list[int], seam: int, sizes: list[int], keep_stop: bool
) -> None:
    """The first detokenizer dies after `seam` ids; a second one gets them as prior output and goes on."""
    count, match = _scheduler_end(strings, regexes, ids)
    ids, seam = ids[:count], min(seam, count)
    whole = _choice(strings, regexes, keep_stop=keep_stop)
    expected = _stream(whole, ids, [1]) + _finish(whole, match.keep_bytes if match else None)

    first = _choice(strings, regexes, keep_stop=keep_stop)
    text = _stream(first, ids[:seam], sizes)
    second = _choice(strings, regexes, keep_stop=keep_stop)
    second.push(ids[:seam])
    second.skip_delivered(first.end_byte)
    text += second.take()
    text += _stream(second, ids, sizes, at=seam) + _finish(second, match.keep_bytes if match else None)
    assert text == expected


@given(ids_lists, st.lists(st.integers(1, 5), min_size=1, max_size=3), string_lists)
@settings(max_examples=500, deadline=None)
def test_through_position_and_pieces(ids: list[int], sizes: list[int], strings: list[str]) -> None:
    """Every id's piece comes exactly once, in order, with the text that completes it."""
    choice = _choice(strings, pieces=True)
    pieces: list[bytes] = []
    at = step = 0
    while at < len(ids):
        size = sizes[step % len(sizes)]
        choice.push(ids[at : at + size])
        at, step = at + size, step + 1
        choice.take()
        pieces += choice.take_pieces()
        assert len(pieces) == choice.through
        assert len(_raw(ids[: choice.through])) <= choice.end_byte
        assert choice.through == len(ids[:at]) or len(_raw(ids[: choice.through + 1])) > choice.end_byte
        assert choice.holding == (choice.end_byte < len(_raw(ids[:at])))
    choice.close(flush=True, keep_bytes=None)
    choice.take()
    pieces += choice.take_pieces()
    assert pieces == [TABLE.piece(i) for i in ids]


def test_hold_back_and_release() -> None:
    choice = _choice(["END"])
    choice.push([3])
    assert choice.take() == ""
    assert choice.holding
    choice.push([12])
    assert choice.take() == "EN" + "x" * 9
    choice.push([3, 4])
    assert choice.take() == ""
    assert _finish(choice, 11) == ""


def test_kept_stops_stay_and_what_follows_goes() -> None:
    choice = _choice(["N"], keep_stop=True)
    choice.push([0, 5])
    assert choice.take() == "aEN"
    assert choice.holding
    assert _finish(choice, 2) == ""


def test_an_overruled_match_is_released() -> None:
    choice = _choice(["b"])
    choice.push([0, 1])
    assert choice.take() == "a"
    choice.push([0])
    assert choice.take() == "ba"
    assert _finish(choice, None) == ""


def test_long_text_comes_in_parts() -> None:
    table = TokenBytes([b"y" * 1000])
    choice = ChoiceText(table, OutputBytes(table), None)
    choice.push([0] * 200)
    parts = []
    choice.close(flush=True, keep_bytes=None)
    while not choice.finished:
        parts.append(choice.take())
    assert "".join(parts) == "y" * 200_000
    assert max(map(len, parts)) <= MOST_BYTES_AT_ONCE
    assert len(parts) > 1


def test_ids_that_never_complete_a_character_do_not_gather() -> None:
    choice = _choice([])
    text = ""
    for _ in range(2000):
        choice.push([8])
        text += choice.take()
        assert choice.waiting_bytes <= 3
    assert text == "\ufffd" * 1999
    assert _finish(choice, None) == "\ufffd"


def test_more_delivered_than_there_is() -> None:
    choice = _choice([])
    choice.push([0])
    with pytest.raises(InvalidRequest, match="delivered_bytes"):
        choice.skip_delivered(2)


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, TokenBytes]:
    folder: Path = write_folder(tmp_path_factory.mktemp("byte_level"), specs()["byte_level"])
    return Tokenizer.from_file(str(folder / "tokenizer.json")), load_token_bytes(find_tokenizer(folder))


@given(data=st.data(), skip=st.booleans())
@settings(max_examples=300, deadline=None)
def test_any_ids_join_to_the_full_decode(byte_level: tuple[Tokenizer, TokenBytes], data: st.DataObject, skip: bool) -> None:
    library, table = byte_level
    ids = data.draw(st.lists(st.integers(0, table.vocab_size - 1), max_size=30))
    choice = ChoiceText(table, OutputBytes(table, skip_special=skip), None)
    text = ""
    for token_id in ids:
        choice.push([token_id])
        text += choice.take()
    assert text + _finish(choice, None) == library.decode(ids, skip_special_tokens=skip)
