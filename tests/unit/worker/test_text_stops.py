"""The worker matches stop texts on the very bytes that the detokenizer makes, special tokens included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.common.errors import InvalidRequest
from services.detokenizer.texts import OpenSpec, SessionTexts, StateBudget
from services.scheduler.text_stops import TextStops
from tests.fakes.byte_vocabulary import DIGEST, SPECIAL, token_bytes

_IDS = st.lists(st.sampled_from([*b"ab<>", *SPECIAL.values()]), max_size=20)
_STOPS = st.lists(st.sampled_from(["a", "ab", "<tool_call>", "b<think>", "> <", "><", "<eos>a", "a a"]), min_size=1, max_size=3)


class _Sink:
    def __init__(self) -> None:
        self.said = ""

    def text(self, handle: int, piece: str, raw_bytes: int, text: Any) -> None:
        self.said += piece

    def pieces(self, handle: int, first_position: int, pieces: list[bytes]) -> None:
        raise AssertionError("nobody asked")

    def closed(self, handle: int, tail: str, text: Any) -> None:
        self.said += tail


def _shown(ids: list[int], keep_bytes: int | None, **options: Any) -> str:
    """What the detokenizer shows of the ids, trimmed."""
    texts = SessionTexts(token_bytes(), DIGEST, StateBudget(4))
    texts.open(OpenSpec(handle=1, context_ids=(5,), **options))
    texts.add_tokens([1], [0], [len(ids)], ids)
    texts.close(1, flush=True, keep_bytes=keep_bytes)
    sink = _Sink()
    texts.take_due(sink)
    return sink.said


@given(_IDS, _STOPS, st.sets(st.sampled_from(sorted(SPECIAL.values()))), st.booleans(), st.booleans())
def test_the_trim_is_right_whatever_is_kept_or_spaced(ids: list[int], stops: list[str], keep: set[int], skip: bool, spaces: bool) -> None:
    make = TextStops(token_bytes(), DIGEST).factory(
        stops, (), np.array([5], np.int32), skip_special=skip, keep_special_ids=keep, spaces_between_special=spaces
    )
    assert make is not None
    options = {"skip_special": skip, "keep_special_ids": tuple(keep), "spaces_between_special": spaces}
    whole = _shown(ids, None, **options)
    match = make().feed(ids)
    if match is None:
        assert not any(stop in whole for stop in stops)
        return
    assert match.stop_index is not None
    shown = _shown(ids[: match.token_index + 1], match.keep_bytes, stop_strings=tuple(stops), **options)
    assert whole.startswith(shown + stops[match.stop_index])
    assert not any(stop in shown for stop in stops)


def test_without_a_tokenizer_stop_texts_are_refused() -> None:
    with pytest.raises(InvalidRequest) as refused:
        TextStops(None, "").factory(["a"], (), np.array([5], np.int32), skip_special=True)
    assert refused.value.field == "stops.strings"
    assert TextStops(None, "").factory((), (), np.array([5], np.int32), skip_special=True) is None
