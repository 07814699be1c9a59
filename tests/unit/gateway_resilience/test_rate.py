"""So many requests a second."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.resilience.admission import Admission, AdmissionSettings
from gateway.resilience.rate import TokenBucket
from services.common.errors import Overloaded
from tests.fakes.stack import until
from tests.unit.gateway_resilience.test_admission import Crowd, admission, loop_clock, settled


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_then_the_rate() -> None:
    clock = Clock()
    bucket = TokenBucket(2.0, 3.0, clock)
    assert [bucket.take() for _ in range(5)] == [True, True, True, False, False]
    assert bucket.wait_s() == pytest.approx(0.5, abs=1e-5)
    assert bucket.wait_s(ahead=3) == pytest.approx(2.0, abs=1e-5)
    clock.now += 0.5
    assert [bucket.take(), bucket.take()] == [True, False]
    clock.now += 3600
    assert [bucket.take() for _ in range(4)] == [True, True, True, False], "a long pause fills it up and no further"


def test_a_clock_that_is_set_back_neither_gives_nor_blocks() -> None:
    clock = Clock()
    bucket = TokenBucket(1.0, 1.0, clock)
    assert bucket.take()
    clock.now -= 50
    assert not bucket.take()
    clock.now += 1
    assert bucket.take()


@given(rate=st.floats(0.1, 1000), burst=st.floats(1, 50), gaps=st.lists(st.floats(0, 2), max_size=60))
def test_never_more_than_burst_and_rate_and_whoever_waits_gets_one(rate: float, burst: float, gaps: list[float]) -> None:
    clock = Clock()
    bucket, taken = TokenBucket(rate, burst, clock), 0
    for gap in gaps:
        clock.now += gap
        taken += bucket.take()
        assert taken <= burst + rate * (clock.now - 100.0) + 1e-3
    clock.now += bucket.wait_s()
    assert bucket.take()


async def test_beyond_the_rate_requests_wait_their_turn_and_time_lets_them_in() -> None:
    crowd = Crowd(admission(max_concurrent=100, rate=50.0, burst=2.0))
    for name in "abcd":
        await crowd.come(name, priority=1 if name == "d" else 0)
    assert crowd.entered == ["a", "b"]
    await until(lambda: len(crowd.entered) == 4)
    assert crowd.entered == ["a", "b", "d", "c"], "the more urgent first, with nobody leaving"
    await crowd.end()


async def test_who_would_wait_too_long_is_told_at_once_for_how_long() -> None:
    gate = admission(max_concurrent=100, rate=0.1, burst=1.0, queue_timeout_s=15.0)
    crowd = Crowd(gate)
    await crowd.come("a")
    await crowd.come("b")
    await crowd.come("c")
    error = crowd.tasks["c"].exception()
    assert isinstance(error, Overloaded)
    assert (error.code, error.http_status) == ("rate_limit_exceeded", 429)
    assert error.retry_after_ms is not None
    assert 10_000 <= error.retry_after_ms <= 20_000
    assert "0.1 requests a second" in error.message
    assert gate.shed() == {"rate": 1}
    assert crowd.entered == ["a"]
    await crowd.end()


async def test_without_a_queue_the_rate_refuses() -> None:
    crowd = Crowd(admission(max_concurrent=100, rate=0.5, burst=2.0, queue_size=0))
    for name in "abc":
        await crowd.come(name)
    assert crowd.entered == ["a", "b"]
    assert isinstance(crowd.tasks["c"].exception(), Overloaded)
    await crowd.end()


async def test_processes_share_the_rate() -> None:
    crowd = Crowd(admission(max_concurrent=100, rate=8.0, processes=4))
    for name in "abc":
        await crowd.come(name)
    assert crowd.entered == ["a", "b"], "two a second are this process's share"
    await crowd.end()


async def test_who_leaves_the_queue_takes_no_token() -> None:
    gate = admission(max_concurrent=100, rate=20.0, burst=1.0)
    crowd = Crowd(gate)
    for name in "abcde":
        await crowd.come(name)
    for name in "bcd":
        crowd.tasks[name].cancel()
    await settled()
    await until(lambda: crowd.entered == ["a", "e"], 1)
    await crowd.end()
    assert gate.snapshot()["m"] == {"running": 0, "waiting": 0, "limit": 100, "shed": 0}


async def test_a_queue_for_the_rate_does_not_tell_the_limit_to_grow() -> None:
    """The limit learns from requests that queue for it, not from those that queue for the bucket."""
    rng = random.Random(1)
    gate = Admission(AdmissionSettings(rate=100_000.0, burst=1.0), loop_clock)
    seen: list[bool] = []
    gate._gate("m").limit.observe = lambda took_s, tokens, running, was_queue: seen.append(was_queue)  # type: ignore[method-assign]

    async def one(gate: Admission) -> None:
        async with gate.admit("m"):
            await asyncio.sleep(rng.random() / 100)

    await asyncio.gather(*(one(gate) for _ in range(50)))
    assert seen == [False] * 50
