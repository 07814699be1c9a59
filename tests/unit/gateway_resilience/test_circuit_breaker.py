"""The breaker under a fake clock."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.resilience.circuit_breaker import BreakerSettings, BreakerState, CircuitBreaker, Permit, Verdict

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def breaker(**settings: float) -> tuple[CircuitBreaker, Clock]:
    clock = Clock()
    return CircuitBreaker(BreakerSettings(**settings), clock), clock  # type: ignore[arg-type]


def settle(b: CircuitBreaker, verdict: Verdict, times: int = 1) -> None:
    for _ in range(times):
        b.acquire().settle(verdict)


def test_the_whole_round() -> None:
    b, clock = breaker()
    settle(b, "failure", 9)
    assert b.state is CLOSED
    settle(b, "failure")
    assert (b.state, b.allows()) == (OPEN, False)
    clock.now += 59.9
    assert not b.allows()
    assert 0 < b.retry_after_s() < 0.2
    clock.now += 0.2
    assert (b.state, b.allows()) == (HALF_OPEN, True)
    settle(b, "success", 2)
    assert b.state is HALF_OPEN
    settle(b, "success")
    assert b.state is CLOSED
    assert b.transitions == {OPEN: 1, HALF_OPEN: 1, CLOSED: 1}


def test_a_failure_in_half_open_opens_it_again() -> None:
    b, clock = breaker()
    settle(b, "failure", 10)
    clock.now += 61
    settle(b, "success", 2)
    settle(b, "failure")
    assert b.state is OPEN
    clock.now += 61
    assert b.state is HALF_OPEN


def test_half_open_admits_only_so_many_at_once() -> None:
    b, clock = breaker(trials=3)
    settle(b, "failure", 10)
    clock.now += 61
    permits = [b.acquire() for _ in range(50) if b.allows()]
    assert len(permits) == 3


def test_trials_that_end_without_a_verdict_make_room_for_others() -> None:
    """Overload, cancels and bad requests in half-open must not use the trials up for good."""
    b, clock = breaker(trials=1)
    settle(b, "failure", 10)
    clock.now += 61
    for _ in range(20):
        assert b.allows()
        settle(b, "neutral")
    settle(b, "success", 3)
    assert b.state is CLOSED


def test_the_window_forgets() -> None:
    b, clock = breaker(window_s=120.0)
    settle(b, "failure", 9)
    clock.now += 131
    settle(b, "failure", 9)
    assert b.state is CLOSED
    settle(b, "failure")
    assert b.state is OPEN


def test_few_failures_among_many_successes_do_not_open_it_but_a_row_of_them_does() -> None:
    b, _ = breaker()
    for _ in range(30):
        settle(b, "success", 20)
        settle(b, "failure", 3)
    assert b.state is CLOSED
    settle(b, "failure", 10)
    assert b.state is OPEN


def test_every_second_request_failing_opens_it() -> None:
    b, _ = breaker()
    for _ in range(10):
        settle(b, "success")
        settle(b, "failure")
    assert b.state is OPEN


def test_verdicts_of_calls_from_before_the_opening_do_not_count_in_half_open() -> None:
    b, clock = breaker()
    old = [b.acquire() for _ in range(5)]
    settle(b, "failure", 10)
    clock.now += 61
    assert b.state is HALF_OPEN
    for permit in old:
        permit.settle("success")
    assert b.state is HALF_OPEN
    old_failure = old[0]
    old_failure.settle("failure")
    assert b.state is HALF_OPEN


def test_disabled_allows_everything() -> None:
    b, _ = breaker(enabled=False)
    settle(b, "failure", 100)
    assert b.allows()


@given(st.integers(0, 1 << 30))
@settings(max_examples=100, deadline=None)
def test_never_stuck_and_never_over_its_trials(seed: int) -> None:
    """Whatever happens, a healed worker gets traffic again within a bounded number of calls."""
    rng = random.Random(seed)
    b, clock = breaker(failures=3, trials=2, successes=2, open_s=10.0)
    held: list[Permit] = []
    for _ in range(200):
        clock.now += rng.random() * 4
        if b.allows() and rng.random() < 0.7:
            held.append(b.acquire())
        if held and rng.random() < 0.6:
            held.pop(rng.randrange(len(held))).settle(rng.choice(["success", "failure", "failure", "neutral"]))
        assert sum(permit.trial and permit._generation == b._generation for permit in held) <= 2
    for permit in held:
        permit.settle("neutral")
    for _ in range(10):
        clock.now += 10
        if b.allows():
            settle(b, "success")
    assert b.state is CLOSED
