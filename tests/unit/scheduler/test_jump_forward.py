"""What a grammar forces is written without decode steps; what is said is the same with and without."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.core.messages import ChoiceSpec, Final, FinishReason, StopSpec, SubmitRequest
from services.scheduler.core.plan import SamplingSpec
from services.scheduler.engine.script import Failure, Script
from tests.unit.scheduler.harness import Driver, prompt
from tests.unit.scheduler.test_endings import Matcher
from tests.unit.scheduler.test_properties import CONTEXT, VOCAB, configuration

FREE = -1
FORM = (8, 9, 10, 11, 12, FREE, 13, 14, FREE, FREE, *range(16, 40), FREE, 5, 6)
SCRIPT = Script("scripted", VOCAB, CONTEXT, (3,))


class Form:
    """A grammar of one text with gaps: an id must come where it is written, in a gap any even one."""

    def __init__(self, form: Sequence[int] = FORM) -> None:
        self._left = deque(form)
        self.ready = True
        self.error: str | None = None
        self.error_field = ""

    @property
    def finished(self) -> bool:
        return not self._left

    def fill_mask(self, words: npt.NDArray[np.int32]) -> None:
        words[:] = 0x55555555
        if self._left and self._left[0] != FREE:
            words[:] = 0
            words[self._left[0] // 32] = 1 << self._left[0] % 32

    def accept(self, token_id: int) -> bool:
        wanted = self._left.popleft() if self._left else None
        return token_id % 2 == 0 if wanted == FREE else token_id == wanted

    def forced_ids(self) -> Sequence[int]:
        forced = []
        for token in self._left:
            if token == FREE:
                break
            forced.append(token)
        return forced


def _driver(*, jump: bool, **config: Any) -> Driver:
    return Driver(SCRIPT, disable_jump_forward=not jump, **config)


def _both(max_new: int = 100, overlap: bool = False, config: dict[str, Any] | None = None, **fields: Any) -> tuple[Driver, Driver]:
    """The same request with and without; what is said must be the same."""
    drivers = tuple(_driver(jump=jump, disable_overlap_schedule=not overlap, **(config or {})) for jump in (True, False))
    for driver in drivers:
        driver.submit(prompt(9, 1, VOCAB), max_new, **{"grammar": Form, **fields})
        driver.run()
    jumping, stepping = drivers
    assert jumping.tokens(1) == stepping.tokens(1)
    assert _end(jumping.final(1)) == _end(stepping.final(1))
    assert stepping.scheduler.counters.jumped_tokens == 0
    return jumping, stepping


def _end(final: Final) -> tuple[Any, ...]:
    return final.reason, final.end_position, final.matched, final.keep_bytes, final.usage, final.error


@pytest.mark.parametrize("overlap", [False, True])
def test_a_forced_span_costs_no_decode_steps(overlap: bool) -> None:
    jumping, stepping = _both(overlap=overlap)
    assert jumping.final(1).reason is FinishReason.GRAMMAR_END
    assert len(jumping.tokens(1)) == len(FORM)
    gaps = FORM.count(FREE)
    assert stepping.scheduler.counters.decode_steps >= len(FORM) - 1
    if overlap:  # a forced token is on its way before its span is known, and the last is computed before the end is
        assert jumping.scheduler.counters.decode_steps <= 3 * (gaps + 1)
    else:
        assert jumping.scheduler.counters.decode_steps == gaps
        assert jumping.scheduler.counters.jumped_tokens == len(FORM) - gaps - 1
    assert max(jumping.said[1].rows) > 20


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(
    "fields",
    [
        {"max_new": 3},
        {"max_new": 20},
        {"token_ids": (20,)},
        {"token_ids": (20,), "min_new_tokens": 12},
        {"ignore_eos": False, "grammar": lambda: Form((8, 2, 4, 5, 3, 6, 7))},
        {"stop_matcher": Matcher, "grammar": lambda: Form((8, 9, 10, 30, 50, 11, 12))},
        {"stream_interval": 4},
        {"sampling": SamplingSpec(temperature=0.0, logprobs=True)},
        {"sampling": SamplingSpec(temperature=1.0), "seed": 7},
        {"grammar": lambda: Form(range(200 - VOCAB, VOCAB))},
        {"grammar": lambda: Form((FREE, *range(10, 60), FREE, *range(10, 60), 4)), "config": {"chunked_prefill_size": 8}},
    ],
    ids="-".join,  # the names of the fields: values have no stable text
)
def test_it_ends_where_it_would_have_ended(fields: dict[str, Any], overlap: bool) -> None:
    jumping, _ = _both(overlap=overlap, **fields)
    assert len(jumping.said[1].logprobs) in (0, len(jumping.tokens(1)))


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("seam", [1, 4, 6, 11, 25, 34])
def test_a_resumed_choice_says_the_rest(seam: int, overlap: bool) -> None:
    whole = _both()[0].tokens(1)
    resumed, _ = _both(overlap=overlap, prior_output_ids=np.array(whole[:seam], np.int32))
    assert resumed.said[1].first == seam
    assert whole[:seam] + resumed.tokens(1) == whole


@dataclass(frozen=True)
class _Work:
    tokens: npt.NDArray[np.int32]
    form: tuple[int, ...]
    fields: dict[str, Any]
    turns: int
    choices: int


def _work(random: Random, longest: int) -> list[_Work]:
    made = []
    for _ in range(16):
        form: list[int] = []
        while len(form) < 60:
            form += [FREE] * random.randrange(1, 4) + random.choices(range(4, VOCAB), k=random.choice([0, 1, 2, 9, 30]))
        fields: dict[str, Any] = {
            "token_ids": (9,) if random.random() < 0.2 else (),
            "stream_interval": random.choice([1, 1, 3]),
            "sampling": SamplingSpec(temperature=random.choice([0.0, 1.0]), logprobs=random.random() < 0.2),
            "max_new": random.randrange(1, 100),
        }
        if random.random() < 0.8:
            fields["grammar"] = tuple(form)
        tokens = prompt(random.randrange(1, 60), random.randrange(6), VOCAB)[:longest]
        made.append(_Work(tokens, tuple(form), fields, random.randrange(6), random.choice([1, 1, 3])))
    return made


def _play(work: list[_Work], script: Script, **config: Any) -> Driver:
    driver = Driver(script, **config)
    handle = 0
    for item in work:
        fields = dict(item.fields)
        form, most, ids = fields.pop("grammar", None), fields.pop("max_new"), fields.pop("token_ids")
        choices = tuple(ChoiceSpec(handle + 1 + index, index, seed=handle) for index in range(item.choices))
        handle += item.choices
        stops = StopSpec(max_new_tokens=most, token_ids=ids, ignore_eos=True)
        grammar = None if form is None else lambda form=form: Form(form)
        driver.scheduler.submit(SubmitRequest(f"r{handle}", item.tokens, choices, stops=stops, grammar=grammar, **fields))
        for _ in range(item.turns):
            driver.turn()
    driver.run()
    return driver


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1 << 30), overlap=st.booleans(), failures=st.lists(st.integers(1, 200), max_size=2))
def test_under_any_pressure_the_same_is_said(seed: int, overlap: bool, failures: list[int]) -> None:
    """Retractions, chunks, small pools, memory that runs out; the driver checks slots and positions in every turn."""
    random = Random(seed)
    config = configuration(random)
    work = _work(random, config["pool"] - 2 * config["page"] - 1)
    script = Script("scripted", VOCAB, CONTEXT, (3,), failures=tuple(Failure(launch) for launch in failures))
    pressed = _play(work, script, **config, disable_overlap_schedule=not overlap)
    alone = _play(work, SCRIPT, pool=8000, rows=64, disable_radix_cache=True, disable_jump_forward=True)
    for handle, said in pressed.said.items():
        assert said.final is not None
        if said.final.reason in (FinishReason.ABORT, FinishReason.ERROR):
            assert said.tokens == alone.tokens(handle)[: len(said.tokens)]
        else:
            assert said.tokens == alone.tokens(handle)
            assert said.final.reason is alone.final(handle).reason
            assert said.final.end_position == alone.final(handle).end_position
    assert pressed.scheduler.flush_cache() is not None
