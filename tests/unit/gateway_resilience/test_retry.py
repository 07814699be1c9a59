"""Attempts, their order, their waits and what limits them, under a fake clock."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from gateway.resilience.retry import Attempts, RetryBudget, RetrySettings
from services.common.errors import DeadlineExceeded, HeadraceError, Internal, InvalidRequest, NotFound, Overloaded, Unavailable


class Time:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Fleet:
    """Workers, each answering with an error or not at all."""

    def __init__(self, **answers: Callable[[], HeadraceError] | None) -> None:
        self.answers = answers
        self.calls: list[str] = []

    def has_untried(self, tried: frozenset[str]) -> bool:
        return bool(set(self.answers) - tried)

    def pick(self, tried: frozenset[str]) -> str:
        return next((name for name in self.answers if name not in tried), next(iter(self.answers)))

    def call(self, name: str) -> str:
        self.calls.append(name)
        answer = self.answers[name]
        if answer is not None:
            raise answer()
        return name


def lost() -> HeadraceError:
    return Unavailable("connection refused", code="not_connected")


async def run(fleet: Fleet, *, time: Time | None = None, budget: RetryBudget | None = None, **options: object) -> str:
    time = time or Time()
    settings = options.pop("settings", RetrySettings())
    attempts = Attempts(
        settings,  # type: ignore[arg-type]
        budget or RetryBudget(rng=random.Random(3)),
        clock=time,
        has_untried=fleet.has_untried,
        sleep=time.sleep,
        **options,  # type: ignore[arg-type]
    )
    async for attempt in attempts.run():
        with attempt:
            name = fleet.pick(attempts.tried)
            attempts.trying(name)
            return fleet.call(name)
    raise AssertionError("not reached")


async def test_an_idle_worker_is_tried_at_once() -> None:
    time = Time()
    fleet = Fleet(a=lost, b=None)
    for _ in range(50):
        assert await run(fleet, time=time) == "b"
    assert time.now == 0.0


@pytest.mark.parametrize("error", [InvalidRequest("no", field="x"), NotFound("no"), DeadlineExceeded("late"), Internal("bug")])
async def test_what_cannot_help_is_not_repeated(error: HeadraceError) -> None:
    fleet = Fleet(a=lambda: error, b=None)
    with pytest.raises(type(error)) as raised:
        await run(fleet)
    assert raised.value is error
    assert fleet.calls == ["a"]


async def test_what_the_worker_calls_safe_is_repeated() -> None:
    fleet = Fleet(a=lambda: Internal("weights are loading", safe_to_retry=True), b=None)
    assert await run(fleet) == "b"


async def test_attempts_are_counted_with_the_first_and_wait_only_when_nobody_is_left() -> None:
    time = Time()
    fleet = Fleet(a=lost, b=lost)
    with pytest.raises(Unavailable):
        await run(fleet, time=time)
    assert fleet.calls[:2] == ["a", "b"]
    assert len(fleet.calls) == 5
    waits = [wait for wait in time.slept if wait > 0]
    assert len(waits) == 3
    assert all(wait <= 0.05 * 1.5**n for n, wait in enumerate(waits))


async def test_after_a_death_others_get_time_to_be_found_dead_too() -> None:
    time = Time()
    fleet = Fleet(a=lambda: Unavailable("reset", code="connection_lost"), b=None)
    assert await run(fleet, time=time) == "b"
    assert time.now == RetrySettings().settle_s


async def test_one_attempt_means_no_retry() -> None:
    fleet = Fleet(a=lost, b=None)
    with pytest.raises(Unavailable):
        await run(fleet, settings=RetrySettings(max_attempts=1))
    assert fleet.calls == ["a"]


async def test_waits_grow_to_the_cap_and_are_spread_over_all_of_their_range() -> None:
    settings = RetrySettings(max_attempts=400, cap_s=2.0)
    time = Time()
    with pytest.raises(Unavailable):
        await run(Fleet(a=lost), time=time, settings=settings, budget=RetryBudget(reserve=1000))
    late = time.slept[50:]
    assert max(late) <= 2.0
    assert min(late) < 0.2
    assert 0.8 < sum(late) / len(late) < 1.2


async def test_no_retry_goes_beyond_the_deadline() -> None:
    time = Time()
    settings = RetrySettings(max_attempts=1000, initial_s=1.0)
    with pytest.raises(Unavailable):
        await run(Fleet(a=lost), time=time, settings=settings, deadline=5.0, budget=RetryBudget(reserve=1000))
    assert time.now < 5.0


async def test_retries_of_all_requests_together_stay_within_the_budget() -> None:
    budget = RetryBudget(share=0.2, reserve=10.0)
    fleet = Fleet(a=lost, b=lost, c=lost)
    for _ in range(500):
        with pytest.raises(Unavailable):
            await run(fleet, budget=budget)
    retries = len(fleet.calls) - 500
    assert 90 <= retries <= 10 + 0.2 * 500 + 1
    assert budget.exhausted > 0


async def test_overload_is_passed_on_to_the_next_worker() -> None:
    fleet = Fleet(a=lambda: Overloaded("full", retry_after_ms=5000), b=None)
    time = Time()
    assert await run(fleet, time=time) == "b"
    assert time.now == 0.0


async def test_without_any_worker_a_new_request_is_told_at_once() -> None:
    time = Time()
    attempts = Attempts(RetrySettings(), RetryBudget(), clock=time, sleep=time.sleep)
    with pytest.raises(Unavailable):
        async for attempt in attempts.run():
            with attempt:
                raise Unavailable("nobody", code="no_worker")
    assert (attempts.retries, time.now) == (0, 0.0)


async def test_a_resumed_request_outlasts_refusals_and_an_empty_fleet() -> None:
    """Neither attempts nor budget stop it: only its patience does."""
    time = Time()
    budget = RetryBudget(share=0.0, reserve=0.0, rng=random.Random(1))
    attempts = Attempts(RetrySettings(max_attempts=2), budget, clock=time, sleep=time.sleep)
    answers: list[HeadraceError] = [lost()] + [Overloaded("full")] * 20 + [Unavailable("nobody", code="no_worker")] * 20
    made = 0
    async for attempt in attempts.run():
        with attempt:
            attempts.resume() if not attempts.resuming else None
            made += 1
            if answers:
                raise answers.pop(0)
    assert made == 42
    with pytest.raises(Overloaded):
        async for attempt in attempts.run():
            with attempt:
                raise Overloaded("full")
    assert 59 < time.now < 61


async def test_cancellation_passes_through() -> None:
    import asyncio

    attempts = Attempts(RetrySettings(), RetryBudget(), clock=Time())
    with pytest.raises(asyncio.CancelledError):
        async for attempt in attempts.run():
            with attempt:
                raise asyncio.CancelledError


def test_a_spent_budget_fills_up_by_itself_so_that_an_idle_gateway_shows_a_full_one() -> None:
    now = 0.0
    budget = RetryBudget(share=0.0, reserve=10.0, refill_s=50.0, clock=lambda: now)
    assert [budget.spend("overloaded") for _ in range(11)] == [True] * 10 + [False]
    assert budget.remaining_share == 0.0
    now = 25.0
    assert budget.remaining_share == pytest.approx(0.5)
    assert [budget.spend("overloaded") for _ in range(6)] == [True] * 5 + [False]
    now = 1000.0
    assert budget.remaining_share == 1.0
