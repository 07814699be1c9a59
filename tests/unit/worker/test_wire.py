"""What goes between a worker's processes comes back equal, and nothing else can be made of bytes."""

from __future__ import annotations

import marshal
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler import wire
from services.scheduler.cache.events import CacheEvents, Cleared, Removed, Stored
from services.scheduler.core.counters import Counters
from services.scheduler.core.messages import (
    Accepted,
    ChoiceSpec,
    ErrorCode,
    ErrorInfo,
    Final,
    FinishReason,
    Matched,
    Namespace,
    StopSpec,
    SubmitRequest,
    TextRules,
    Timings,
    TokenColumns,
    TurnOutput,
    Usage,
)
from services.scheduler.core.plan import RowLogprobs, SamplingSpec
from services.scheduler.delivery import Cancel, Delivery, Submit, Update

_INTS = st.integers(0, 2**63 - 1)
_FLOATS = st.floats(allow_nan=False)
_HASHES = st.integers(0, 2**64 - 1)
_IDS = st.lists(st.integers(0, 2**31 - 1), max_size=20).map(lambda ids: np.array(ids, np.int32))
_LOGPROBS = st.builds(
    RowLogprobs, _FLOATS, st.tuples(_INTS.map(lambda i: i % 1000)), st.tuples(_FLOATS), st.lists(_FLOATS, max_size=3).map(tuple)
)
_FINALS = st.builds(
    Final,
    _INTS,
    st.sampled_from(FinishReason),
    _INTS,
    st.builds(Usage, _INTS, _INTS, _INTS),
    st.builds(Timings, st.none() | _INTS, st.none() | _INTS, st.none() | _INTS, _INTS),
    matched=st.none() | st.builds(Matched, token_id=_INTS),
    error=st.none() | st.builds(ErrorInfo, st.sampled_from(ErrorCode), st.text(max_size=20)),
)
_OUTPUTS = st.builds(
    TurnOutput,
    _INTS,
    _INTS,
    st.builds(
        TokenColumns,
        st.lists(_INTS, max_size=4),
        st.lists(_INTS, max_size=4),
        st.lists(_INTS, max_size=4),
        st.lists(_INTS, max_size=4),
        st.lists(st.none() | st.tuples(_LOGPROBS), max_size=4),
    ),
    st.lists(st.builds(Accepted, _INTS, _INTS, st.none() | _INTS), max_size=2),
    finals=st.lists(_FINALS, max_size=2),
)
_EVENTS = st.builds(
    CacheEvents,
    _INTS,
    _INTS,
    st.lists(st.builds(Stored, _HASHES, st.lists(_HASHES, max_size=3).map(tuple)) | st.just(Cleared()), max_size=3),
)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype and np.array_equal(one, other))
    if type(one) is not type(other):
        return False
    if is_dataclass(one):
        return all(_same(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


@settings(deadline=None)
@given(st.builds(Delivery, _OUTPUTS, st.none() | _EVENTS, st.none() | st.sampled_from(["prefill", "decode"])))
def test_deliveries_come_back_equal(delivery: Delivery) -> None:
    assert _same(wire.decode(wire.encode(delivery)), delivery)


@settings(deadline=None)
@given(_IDS, st.builds(TextRules, st.tuples(st.text(max_size=5)), constraint=st.none() | st.tuples(st.text(), st.text())))
def test_requests_come_back_without_what_is_made_anew(ids: Any, rules: TextRules) -> None:
    request = SubmitRequest(
        "r",
        ids,
        (ChoiceSpec(1 << 40, seed=2**64 - 1, prior_output_ids=ids),),
        SamplingSpec(logit_bias=((3, -1.5),), logprob_ids=(1, 2), processor=("mine", '{"a": 1}')),
        StopSpec(token_ids=(7,)),
        namespace=Namespace(cache_salt=b"\x00s"),
        stop_matcher=lambda: None,  # type: ignore[arg-type,return-value]
        texts=rules,
    )
    found = wire.decode(wire.encode([Submit(request), Cancel(1, 2), Update(3, priority=4)]))
    assert found[0].request.stop_matcher is None
    assert _same(found[0].request.texts, rules)
    assert _same(found[0].request.choices, request.choices)
    assert _same(found[0].request.sampling, request.sampling)
    assert _same(found[1:], [Cancel(1, 2), Update(3, priority=4)])


def test_counters_keep_their_dictionaries() -> None:
    counters = Counters(turns=3)
    counters.count_final("stop")
    assert wire.decode(wire.encode(counters)) == counters


def test_what_is_not_listed_does_not_travel() -> None:
    with pytest.raises(TypeError, match="Removable does not travel"):
        wire.encode(Removable())
    with pytest.raises(IndexError):
        wire.decode(marshal.dumps((..., 10_000, 1)))
    assert wire.decode(wire.encode(Removed((1, 2)))) == Removed((1, 2))


class Removable:
    """No message."""
