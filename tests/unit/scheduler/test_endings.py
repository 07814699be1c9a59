"""How choices end: the fixed order of stops, resumed output, cancels, time limits, priorities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from services.scheduler.core.messages import ChoiceSpec, ErrorCode, Final, FinishReason, Matched, StopSpec, SubmitRequest
from services.scheduler.core.plan import SamplingSpec
from services.scheduler.engine.script import Playback, Script
from tests.unit.scheduler.harness import NO_EOS, Driver, prompt

EOS, STOP_ID, STOP_TEXT = 1, 40, 41
SECOND = 1_000_000_000


@dataclass(frozen=True)
class Hit:
    token_index: int
    keep_bytes: int
    stop_index: int | None = 0
    regex_index: int | None = None


class Matcher:
    """Matches one token; every token is three bytes long."""

    def __init__(self) -> None:
        self.seen = 0

    def feed(self, ids: Sequence[int]) -> Hit | None:
        for index, token in enumerate(ids):
            if token == STOP_TEXT:
                return Hit(index, 3 * self.seen)
            self.seen += 1
        return None


class Countdown:
    """A grammar of `length` tokens of which all must be even."""

    def __init__(self, length: int) -> None:
        self.left = length
        self.ready = True
        self.error: str | None = None
        self.error_field = ""

    @property
    def finished(self) -> bool:
        return self.left <= 0

    def fill_mask(self, words: npt.NDArray[np.int32]) -> None:
        words[:] = 0x55555555

    def accept(self, token_id: int) -> bool:
        self.left -= 1
        return token_id % 2 == 0 and self.error is None

    def forced_ids(self) -> Sequence[int]:
        return ()


def play(*output: int, context: int = 512) -> Script:
    return Script("scripted", 100, context, (EOS,), (Playback((), output),))


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(
    ("output", "fields", "reason", "matched", "keep", "length"),
    [
        ((7, 8, EOS, 9), {"ignore_eos": False}, FinishReason.STOP, Matched(token_id=EOS), None, 3),
        ((7, 8, EOS, 9), {"max_new": 4}, FinishReason.LENGTH, None, None, 4),
        ((7, STOP_ID, 8), {"token_ids": (STOP_ID,)}, FinishReason.STOP, Matched(token_id=STOP_ID), None, 2),
        ((7, STOP_ID, 8), {"token_ids": (STOP_ID,), "ignore_eos": True}, FinishReason.STOP, Matched(token_id=STOP_ID), None, 2),
        ((7, 8, STOP_TEXT), {"stop_matcher": Matcher}, FinishReason.STOP, Matched(stop_index=0), 6, 3),
        ((7, STOP_TEXT), {"stop_matcher": Matcher, "token_ids": (STOP_TEXT,)}, FinishReason.STOP, Matched(stop_index=0), 3, 2),
        ((7, STOP_TEXT), {"stop_matcher": Matcher, "max_new": 2}, FinishReason.STOP, Matched(stop_index=0), 3, 2),
        ((7, EOS), {"max_new": 2, "ignore_eos": False}, FinishReason.STOP, Matched(token_id=EOS), None, 2),
        ((8, 8, 8), {"grammar": lambda: Countdown(2)}, FinishReason.GRAMMAR_END, None, None, 2),
        ((8, 8, 8), {"grammar": lambda: Countdown(2), "max_new": 2}, FinishReason.LENGTH, None, None, 2),
        ((8, STOP_ID), {"grammar": lambda: Countdown(2), "token_ids": (STOP_ID,)}, FinishReason.STOP, Matched(token_id=STOP_ID), None, 2),
        ((STOP_ID,) * 4, {"token_ids": (STOP_ID,), "min_new_tokens": 3}, FinishReason.STOP, Matched(token_id=STOP_ID), None, 4),
        ((STOP_TEXT, 7, STOP_TEXT), {"stop_matcher": Matcher, "min_new_tokens": 2}, FinishReason.STOP, Matched(stop_index=0), 3, 3),
        ((7, 8), {"max_new": 0}, FinishReason.LENGTH, None, None, 0),
    ],
)
def test_order_of_stops(
    overlap: bool,
    output: tuple[int, ...],
    fields: dict[str, Any],
    reason: FinishReason,
    matched: Matched | None,
    keep: int | None,
    length: int,
) -> None:
    driver = Driver(play(*output), disable_overlap_schedule=not overlap)
    handle = driver.submit(prompt(9, vocab=100), **{"max_new": 50, **fields})
    driver.run()
    final = driver.final(handle)
    assert (final.reason, final.matched, final.keep_bytes, final.end_position) == (reason, matched, keep, length)
    assert len(driver.tokens(handle)) == length


def test_masked_ids_are_not_sampled() -> None:
    driver = Driver(play(7, 9, 11), disable_overlap_schedule=False)
    handle = driver.submit(prompt(9, vocab=100), grammar=lambda: Countdown(3))
    driver.run()
    assert driver.tokens(handle) == [8, 10, 12]


def test_a_grammar_in_compilation_holds_nobody_else_and_its_failure_is_told() -> None:
    driver = Driver(play(*[8] * 20), max_running_requests=2)
    slow, broken = Countdown(3), Countdown(3)
    slow.ready = broken.ready = False
    waiting = driver.submit(prompt(9, 1, 100), grammar=lambda: slow)
    failing = driver.submit(prompt(9, 2, 100), grammar=lambda: broken)
    cancelled = driver.submit(prompt(9, 3, 100), grammar=lambda: broken)
    free = driver.submit(prompt(9, 4, 100), 5)
    driver.turn()
    assert driver.said[free].started and not driver.said[waiting].started
    assert driver.scheduler.load().grammar_waiting == 3
    driver.scheduler.cancel(cancelled)
    broken.error, slow.ready = "not a regular expression: foo**", True
    driver.run()
    final = driver.final(failing)
    assert final.error is not None and (final.error.code, final.error.field) == (ErrorCode.INVALID_REQUEST, "constraint")
    assert driver.tokens(failing) == [] and driver.tokens(waiting) == [8, 8, 8]
    assert driver.final(cancelled).reason is FinishReason.ABORT


def test_a_grammar_given_up_in_mid_output_ends_its_choice() -> None:
    driver = Driver(play(*[8] * 20))
    grammar = Countdown(9)
    handle = driver.submit(prompt(9, 1, 100), grammar=lambda: grammar)
    driver.turn()
    grammar.error, grammar.error_field = "costs too much time per token", "constraint.regex"
    driver.run()
    final = driver.final(handle)
    assert final.reason is FinishReason.ERROR and final.error is not None and final.error.field == "constraint.regex"


@pytest.mark.parametrize("at", [0, 1, 3])
def test_a_resumed_choice_goes_on_where_it_was(at: int) -> None:
    """Same tokens, positions, limits and stops as an uninterrupted run."""
    whole = Driver(NO_EOS)
    handle = whole.submit(prompt(20), 6)
    whole.run()
    output = whole.tokens(handle)
    resumed = Driver(NO_EOS)
    again = resumed.submit(prompt(20), 6, prior_output_ids=np.array(output[:at], np.int32))
    resumed.run()
    assert output[:at] + resumed.tokens(again) == output
    assert resumed.said[again].first == at
    assert resumed.final(again).end_position == 6
    assert resumed.final(again).usage.completion_tokens == 6


@pytest.mark.parametrize(
    ("prior", "fields", "reason", "length"),
    [
        ((7, STOP_TEXT), {"stop_matcher": Matcher}, FinishReason.STOP, 2),
        ((7, EOS), {"ignore_eos": False}, FinishReason.STOP, 2),
        ((7, 8, 9), {"max_new": 3}, FinishReason.LENGTH, 3),
        ((8, 8), {"grammar": lambda: Countdown(2)}, FinishReason.GRAMMAR_END, 2),
    ],
)
def test_complete_prior_output_is_not_extended(prior: tuple[int, ...], fields: dict[str, Any], reason: FinishReason, length: int) -> None:
    driver = Driver(play(5, 5, 5))
    handle = driver.submit(prompt(9, vocab=100), prior_output_ids=np.array(prior, np.int32), **{"max_new": 50, **fields})
    driver.run()
    assert (driver.final(handle).reason, driver.final(handle).end_position) == (reason, length)
    assert driver.engine.plans == []


@pytest.mark.parametrize("overlap", [False, True])
def test_cancel_waiting_chunked_and_running(overlap: bool) -> None:
    driver = Driver(NO_EOS, pool=2000, chunked_prefill_size=64, max_running_requests=2, disable_overlap_schedule=not overlap)
    running = driver.submit(prompt(10, 1), 100)
    driver.turn()
    chunked = driver.submit(prompt(500, 2), 5)
    waiting = driver.submit(prompt(10, 3), 5)
    driver.turn()
    for handle in (waiting, chunked, running, running, 999):
        driver.scheduler.cancel(handle, 3, "test")
    driver.run()
    for handle in (running, chunked, waiting):
        final = driver.final(handle)
        assert final.reason is FinishReason.ABORT and final.cancel_cause == 3
        assert final.error is not None and final.error.code is ErrorCode.CANCELLED
    assert driver.final(running).end_position == len(driver.tokens(running)) > 0
    again = driver.submit(prompt(500, 2), 2)
    driver.run()
    assert driver.said[again].started[0].cached_tokens == 64  # what was computed stayed in the prefix cache


def test_a_turn_of_chat_finds_all_of_the_turn_before() -> None:
    driver = Driver(NO_EOS)
    first = driver.submit(prompt(30), 12)
    driver.run()
    history = prompt(30).tolist() + driver.tokens(first)
    second = driver.submit([*history, 3, 4, 5], 2)
    driver.run()
    assert driver.said[second].started[0].cached_tokens == len(history) - 1


@pytest.mark.parametrize(
    ("config", "turns_before", "code"),
    [
        ({"req_waiting_timeout_s": 1.0}, 0, ErrorCode.OVERLOADED),
        ({"req_running_timeout_s": 1.0}, 2, ErrorCode.OVERLOADED),
    ],
)
def test_time_limits(config: dict[str, Any], turns_before: int, code: ErrorCode) -> None:
    driver = Driver(max_running_requests=1, **config)
    blocker = driver.submit(prompt(5, 1), 300)
    driver.turn()
    late = driver.submit(prompt(5, 2), 300) if not turns_before else blocker
    driver.turn()
    driver.clock_ns += SECOND - 10
    driver.turn()
    assert driver.said[late].final is None
    driver.clock_ns += 20
    driver.turn()
    error = driver.final(late).error
    assert error is not None and error.code is code
    assert driver.said[blocker].final is None or late == blocker
    driver.scheduler.cancel(blocker)
    driver.run()


def test_deadlines_can_be_moved() -> None:
    driver = Driver()
    handle = driver.submit(prompt(5), 400, deadline_ns=100)
    other = driver.submit(prompt(5, 2), 400, deadline_ns=100)
    driver.turn()
    driver.scheduler.update(handle, deadline_ns=500)
    driver.clock_ns = 101
    driver.turn()
    assert driver.said[handle].final is None
    assert driver.scheduler.next_timer_ns == 500
    driver.clock_ns = 500
    driver.turn()
    for ended in (handle, other):
        error = driver.final(ended).error
        assert error is not None and error.code is ErrorCode.DEADLINE_EXCEEDED
    driver.run()


def test_timers_of_finished_requests_are_forgotten() -> None:
    driver = Driver(check=False)
    for number in range(3000):
        driver.submit(prompt(3, number), 1, deadline_ns=10**15)
        if number % 50 == 49:
            driver.run()
    assert len(driver.scheduler._intake._timers._heap) <= 1100


@pytest.mark.parametrize(("priority", "preempts"), [(10, False), (11, True)])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("low_first", [False, True])
def test_preemption_needs_more_than_the_threshold(priority: int, preempts: bool, overlap: bool, low_first: bool) -> None:
    def run(second: bool) -> Driver:
        driver = Driver(
            max_running_requests=1,
            enable_priority_scheduling=True,
            schedule_low_priority_values_first=low_first,
            disable_overlap_schedule=not overlap,
        )
        driver.submit(prompt(20, 1), 30, priority=0)
        for _ in range(5):
            driver.turn()
        if second:
            driver.submit(prompt(20, 2), 5, priority=-priority if low_first else priority)
        driver.run()
        return driver

    alone, both = run(False), run(True)
    assert both.scheduler.counters.preemptions == int(preempts)
    assert both.final(1).retractions == int(preempts)
    assert both.tokens(1) == alone.tokens(1)
    order = [decision.handle for decision in both.scheduler.decisions(100) if decision.kind == "finish"]
    assert order == ([2, 1] if preempts else [1, 2])


def test_priorities_order_the_queue_and_can_be_disabled() -> None:
    driver = Driver(max_running_requests=1, enable_priority_scheduling=True, disable_priority_preemption=True)
    driver.submit(prompt(5, 1), 10, priority=0)
    driver.turn()
    low, high = driver.submit(prompt(5, 2), 2, priority=1), driver.submit(prompt(5, 3), 2, priority=90)
    default = driver.submit(prompt(5, 4), 2)
    driver.run()
    order = [decision.handle for decision in driver.scheduler.decisions(100) if decision.kind == "finish"]
    assert order == [1, high, low, default]
    strict = Driver(abort_on_priority_when_disabled=True)
    handle = strict.submit(prompt(5), 2, priority=3)
    strict.run()
    error = strict.final(handle).error
    assert error is not None and error.field == "priority"


def submit_choices(driver: Driver, count: int, tokens: npt.NDArray[np.int32], **fields: Any) -> list[Final]:
    specs = tuple(ChoiceSpec(handle=100 + index, index=index, seed=index) for index in range(count))
    driver.scheduler.submit(
        SubmitRequest("many", tokens, specs, SamplingSpec(temperature=1.0), StopSpec(max_new_tokens=6, ignore_eos=True))
    )
    driver.run()
    return [driver.final(spec.handle) for spec in specs]


def test_choices_share_the_prefill_of_their_prompt() -> None:
    driver = Driver()
    finals = submit_choices(driver, 4, prompt(100))
    assert [plan.extend_lens.tolist() for plan in driver.engine.plans if plan.mode == 1] == [[100], [1, 1, 1]]
    assert len({tuple(driver.tokens(final.handle)) for final in finals}) == 4
    assert all(final.usage.prompt_tokens == 100 and final.usage.completion_tokens == 6 for final in finals)


@pytest.mark.parametrize("config", [{"disable_radix_cache": True}, {"disable_overlap_schedule": False}])
def test_choices_without_cache_or_with_overlap(config: dict[str, Any]) -> None:
    reference, driver = Driver(), Driver(**config)
    for ours in (reference, driver):
        submit_choices(ours, 3, prompt(50))
    assert [driver.tokens(100 + index) for index in range(3)] == [reference.tokens(100 + index) for index in range(3)]


def test_a_cancelled_first_choice_does_not_hold_the_others() -> None:
    driver = Driver(chunked_prefill_size=16)
    specs = tuple(ChoiceSpec(handle=handle, index=handle) for handle in range(3))
    driver.scheduler.submit(SubmitRequest("r", prompt(60), specs, stops=StopSpec(max_new_tokens=3, ignore_eos=True)))
    driver.turn()
    driver.scheduler.cancel(0)
    driver.run()
    assert driver.final(1).reason is driver.final(2).reason is FinishReason.LENGTH


def test_a_handle_in_use_is_the_callers_mistake() -> None:
    driver = Driver()
    driver.submit(prompt(5), 50, handle=7)
    with pytest.raises(ValueError, match="in use"):
        driver.submit(prompt(5), 50, handle=7)
    driver.run()
    driver.said.clear()
    driver.submit(prompt(5), 3, handle=7)
    driver.run()


def test_flush_only_when_idle() -> None:
    driver = Driver()
    driver.submit(prompt(50), 10)
    driver.turn()
    assert driver.scheduler.flush_cache() is None
    driver.run()
    assert driver.scheduler.flush_cache() == 59
    assert driver.scheduler.load().kv_free_tokens == 4096
