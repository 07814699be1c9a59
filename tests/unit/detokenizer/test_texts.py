"""The choices of a Session: one end per open, duplicates and gaps noticed, limits kept, frames small."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.common.errors import FailedPrecondition, Internal, InvalidRequest, Overloaded
from services.common.grpc_options import MAX_FRAME_BYTES
from services.common.text.token_bytes import TokenBytes
from services.detokenizer.convert import FrameBuilder
from services.detokenizer.incremental import ChoiceText
from services.detokenizer.texts import OpenSpec, ProtocolViolation, SessionTexts, StateBudget

PIECES = [bytes([c]) for c in b"abcdefghij"] + [b"\xff" * 30_000, b"<s>", b" w"]
TABLE = TokenBytes(PIECES, special_ids=frozenset({11}), added_ids=frozenset({11}), start_pieces={12: b"w"}, bos_id=11)


def _texts(limit: int = 8) -> SessionTexts:
    return SessionTexts(TABLE, "digest", StateBudget(limit))


class Heard:
    """What the peer of a Session hears."""

    def __init__(self) -> None:
        self.shown: dict[int, str] = {}
        self.ended: dict[int, int] = {}

    def text(self, handle: int, piece: str, raw_bytes: int, text: ChoiceText) -> None:
        self.shown[handle] = self.shown.get(handle, "") + piece

    def pieces(self, handle: int, first_position: int, pieces: list[bytes]) -> None:
        raise AssertionError("nobody asked for pieces")

    def closed(self, handle: int, tail: str, text: ChoiceText) -> None:
        assert handle not in self.ended
        self.shown[handle] = self.shown.get(handle, "") + tail
        self.ended[handle] = text.end_byte


def _heard(texts: SessionTexts) -> dict[int, str]:
    heard = Heard()
    texts.take_due(heard)
    return heard.shown


def test_columns_of_several_handles() -> None:
    texts = _texts()
    heard = Heard()
    for handle in (1, 2, 3):
        texts.open(OpenSpec(handle))
    texts.add_tokens([1, 2, 3], [0, 0, 0], [1, 2, 0], [0, 1, 2])
    texts.add_tokens([2, 1], [2, 1], [1, 1], [3, 4])
    texts.take_due(heard)
    texts.close(1, flush=True, keep_bytes=1)
    texts.close(2, flush=True, keep_bytes=None)
    texts.close(3, flush=False, keep_bytes=None)
    texts.take_due(heard)
    assert heard.shown == {1: "ae", 2: "bcd", 3: ""}
    assert heard.ended == {1: 2, 2: 3, 3: 0}
    assert len(texts) == 0


def test_pending_text_merges_while_nobody_takes_it() -> None:
    texts = _texts()
    texts.open(OpenSpec(1))
    for position in range(10):
        texts.add_tokens([1], [position], [1], [position])
    assert _heard(texts) == {1: "abcdefghij"}
    assert not texts.has_due


def test_duplicates_are_dropped_and_overlaps_trimmed() -> None:
    texts = _texts()
    texts.open(OpenSpec(1))
    texts.add_tokens([1], [0], [3], [0, 1, 2])
    texts.add_tokens([1], [0], [3], [0, 1, 2])
    texts.add_tokens([1, 1], [1, 5], [4, 1], [1, 2, 3, 4, 5])
    texts.add_tokens([99], [0], [1], [0])
    assert _heard(texts) == {1: "abcdef"}
    assert not texts.failed


def test_a_gap_fails_its_handle_alone() -> None:
    budget = StateBudget(8)
    texts = SessionTexts(TABLE, "digest", budget)
    texts.open(OpenSpec(1))
    texts.open(OpenSpec(2))
    texts.add_tokens([1, 2], [1, 0], [1, 1], [0, 1])
    [(handle, error)] = texts.failed
    assert handle == 1
    assert isinstance(error, Internal)
    assert "position 1 came, 0 was expected" in error.message
    assert _heard(texts) == {2: "b"}
    texts.close(1, flush=True, keep_bytes=None)
    assert len(texts) == budget.used == 1


def test_broken_columns_and_reused_handles_end_the_session() -> None:
    texts = _texts()
    texts.open(OpenSpec(1))
    with pytest.raises(ProtocolViolation):
        texts.open(OpenSpec(1))
    with pytest.raises(ProtocolViolation):
        texts.add_tokens([1], [0], [2], [0])
    with pytest.raises(ProtocolViolation):
        texts.add_tokens([1], [0, 1], [1], [0])


def test_the_limit_names_its_setting_and_spares_the_others() -> None:
    budget = StateBudget(4)
    first, second = SessionTexts(TABLE, "digest", budget), SessionTexts(TABLE, "digest", budget)
    for handle in range(3):
        first.open(OpenSpec(handle))
    for handle in range(3):
        second.open(OpenSpec(handle))
    assert not first.failed
    assert [handle for handle, _ in second.failed] == [1, 2]
    error = second.failed[0][1]
    assert isinstance(error, Overloaded)
    assert "--max-states" in error.message
    first.drop_all()
    second.open(OpenSpec(5))
    assert len(second.failed) == 2
    assert budget.used == len(second) == 2


def test_refused_opens() -> None:
    texts = _texts()
    texts.open(OpenSpec(1, tokenizer_digest="other"))
    texts.open(OpenSpec(2, stop_strings=[""]))
    texts.open(OpenSpec(3, stop_regexes=["("]))
    texts.open(OpenSpec(4, prior_output_ids=[0], delivered_bytes=2))
    texts.open(OpenSpec(5, delivered_bytes=1))
    assert [type(error) for _, error in texts.failed] == [FailedPrecondition, *[InvalidRequest] * 4]
    assert [error.field for _, error in texts.failed] == ["", "stop_strings[0]", "stop_regexes[0]", "delivered_bytes", "delivered_bytes"]
    assert len(texts) == 0


def test_prior_output_in_parts() -> None:
    texts = _texts()
    texts.open(OpenSpec(1, prior_output_ids=[0, 1], total_prior_tokens=5, delivered_bytes=3))
    assert not texts.has_due
    texts.add_prior(1, 2, [2])
    texts.add_prior(1, 3, [3, 4])
    texts.add_tokens([1], [5], [1], [5])
    assert _heard(texts) == {1: "def"}
    texts.open(OpenSpec(2, prior_output_ids=[0], total_prior_tokens=3))
    texts.add_prior(2, 2, [1])
    texts.open(OpenSpec(3, prior_output_ids=[0], total_prior_tokens=3))
    texts.add_tokens([3], [1], [1], [1])
    texts.open(OpenSpec(4, prior_output_ids=[0], total_prior_tokens=3))
    texts.close(4, flush=True, keep_bytes=None)
    assert [handle for handle, _ in texts.failed] == [2, 3, 4]


def test_pieces_of_any_ids_at_a_place() -> None:
    texts = _texts()
    texts.open(OpenSpec(1, context_ids=[11], skip_special=True))
    assert texts.pieces(1, 0, [12, 11, 99]) == [b"w", b"<s>", b""]
    assert texts.pieces(1, 1, [12]) == [b" w"]
    assert texts.pieces(77, 0, [12]) == [b" w"]


@given(st.lists(st.tuples(st.integers(1, 4), st.lists(st.integers(0, 12), max_size=4)), max_size=30), st.booleans())
@settings(max_examples=200, deadline=None)
def test_no_frame_is_too_large_and_nothing_is_lost(steps: list[tuple[int, list[int]]], want_pieces: bool) -> None:
    texts = _texts()
    expected: dict[int, bytes] = {}
    positions: dict[int, int] = {}
    for handle, ids in steps:
        if handle not in expected:
            texts.open(OpenSpec(handle, context_ids=[0], want_pieces=want_pieces))
            expected[handle], positions[handle] = b"", 0
        texts.add_tokens([handle], [positions[handle]], [len(ids)], ids)
        positions[handle] += len(ids)
        expected[handle] += b"".join(TABLE.piece(i) for i in ids)
    for handle in expected:
        texts.close(handle, flush=True, keep_bytes=None)
    shown = dict.fromkeys(expected, "")
    pieces: dict[int, list[bytes]] = {handle: [] for handle in expected}
    ends: set[int] = set()
    while texts.has_due:
        builder = FrameBuilder()
        texts.take_due(builder)
        for frame in builder.frames():
            assert frame.ByteSize() <= MAX_FRAME_BYTES
            for handle, piece in zip(frame.text.handle, frame.text.piece, strict=True):
                shown[handle] += piece
            for entry in frame.text.token_pieces:
                assert entry.first_position == len(pieces[frame.text.handle[entry.row]])
                pieces[frame.text.handle[entry.row]] += entry.pieces
            for closed in frame.closed:
                assert closed.handle not in ends
                ends.add(closed.handle)
                shown[closed.handle] += closed.tail
                assert closed.total_bytes == len(expected[closed.handle])
    assert ends == set(expected)
    assert shown == {handle: raw.decode(errors="replace") for handle, raw in expected.items()}
    if want_pieces:
        assert {handle: b"".join(parts) for handle, parts in pieces.items()} == expected
