"""Bounds that fall when device memory runs out, and how they come back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.core.memory_bound import MemoryBound
from services.scheduler.core.messages import FinishReason
from services.scheduler.core.plan import StepPlan
from services.scheduler.engine.interface import OutOfMemory
from services.scheduler.engine.script import Failure, Script
from tests.unit.scheduler.harness import Driver, prompt


def steps(bound: MemoryBound, count: int) -> int:
    """Steps that fit; how often the bound grew."""
    return sum(bound.fitted() for _ in range(count))


def test_a_bound_is_halved_and_grows_by_portions_up_to_what_was_configured() -> None:
    bound = MemoryBound(1600, 16)
    assert steps(bound, 1000) == 0
    assert bound.lower(1000) and bound.value == 500
    assert steps(bound, 63) == 0 and steps(bound, 1) == 1 and bound.value == 600
    assert steps(bound, 64 * 100) == 10 and bound.value == 1600


def test_growth_that_fails_goes_back_and_is_tried_again_half_as_often() -> None:
    bound = MemoryBound(1600, 16)
    bound.lower(1000)
    patience, failures = 64, 0
    for _ in range(5):  # more than 500 never fits
        assert steps(bound, patience) == 1 and bound.value == 600
        assert bound.lower(560) and bound.value == 500
        patience, failures = 2 * patience, failures + 1
        assert steps(bound, patience - 1) == 0
        bound.fitted()
        assert bound.value == 600
        bound.lower(560)
        patience *= 2


def test_what_was_known_to_fit_is_halved_when_it_fits_no_longer() -> None:
    bound = MemoryBound(1600, 16)
    bound.lower(1000)
    steps(bound, 64)
    assert bound.lower(550) and bound.value == 500
    assert bound.lower(500) and bound.value == 250
    assert bound.lower(30) and bound.value == 16
    assert not bound.lower(16)


@settings(max_examples=50, deadline=None)
@given(
    most=st.integers(1, 5000),
    least=st.integers(1, 64),
    events=st.lists(st.one_of(st.integers(1, 400).map(lambda count: ("fit", count)), st.integers(1, 5000).map(lambda size: ("oom", size)))),
)
def test_a_bound_never_leaves_its_range_and_never_rises_when_memory_ends(most: int, least: int, events: list[tuple[str, int]]) -> None:
    bound = MemoryBound(most, least)
    for kind, number in events:
        before = bound.value
        if kind == "fit":
            steps(bound, number)
            assert before <= bound.value <= most
        else:
            bound.lower(min(number, before))
            assert min(least, most) <= bound.value <= before


class Tight(Driver):
    """Steps above `limit` tokens do not fit; a test may change it while the driver runs."""

    limit = 1 << 30

    def __init__(self, **config: object) -> None:
        super().__init__(Script(vocab_size=50_000, context_length=1024, eos_token_ids=()), **config)  # type: ignore[arg-type]
        launch = self.engine.launch

        def tight(plan: StepPlan) -> None:
            if plan.input_ids.size > self.limit:
                raise OutOfMemory("full")
            launch(plan)

        self.engine.launch = tight  # type: ignore[method-assign]


@pytest.mark.parametrize("overlap", [False, True])
def test_when_memory_is_free_again_steps_become_as_large_as_before(overlap: bool) -> None:
    driver = Tight(chunked_prefill_size=256, check=False, disable_overlap_schedule=not overlap)
    driver.limit = 40
    first = [driver.submit(prompt(400, number), 20) for number in range(3)]
    driver.run()
    assert driver.scheduler.limits.chunked_prefill_size <= 40 + 16
    driver.limit = 1 << 30
    longest = driver.submit(prompt(10, 7), 1000)
    driver.run()
    limits = driver.scheduler.limits
    assert limits.chunked_prefill_size == 256
    wide = driver.submit(prompt(900, 8), 4)
    driver.run()
    assert max(plan.input_ids.size for plan in driver.engine.plans[-10:]) == 256
    assert all(driver.final(handle).reason is FinishReason.LENGTH for handle in (*first, longest, wide))
    grown = [decision for decision in driver.scheduler.decisions(512) if decision.kind == "grow"]
    assert grown and dict(grown[-1].numbers)["new"] == 256
    assert driver.scheduler.counters.memory_bound_raises >= len(grown)
    assert any("fit into device memory again" in str(line) for line in driver.lines)


def test_memory_that_stays_short_costs_ever_fewer_failures() -> None:
    """Steps above 100 tokens never fit: failures grow with the logarithm of the steps, not with their number."""
    driver = Tight(chunked_prefill_size=256, check=False, pool=20_000)
    driver.limit = 100
    failures = []
    for number in range(500):
        driver.submit(prompt(200, number), 2)
        for _ in range(5):
            driver.turn()
        failures.append(driver.scheduler.counters.out_of_memory)
    driver.run()
    assert 2 < failures[-1] <= 8
    assert failures[-1] - failures[-len(failures) // 3] <= 1


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("limit", [20, 60, 100])
def test_a_narrow_device_serves_many_in_the_end(mixed: bool, limit: int) -> None:
    """Prompts beside up to 64 decoding choices: neither bound alone makes such a step small enough."""
    driver = Tight(chunked_prefill_size=256, enable_mixed_chunk=mixed, pool=20_000, check=False)
    driver.limit = limit
    handles = [driver.submit(prompt(50, number), 30) for number in range(80)]
    driver.run()
    assert all(driver.final(handle).reason is FinishReason.LENGTH for handle in handles)
    assert driver.scheduler.counters.out_of_memory < 40
    calm = Driver(replace(driver.engine._script), pool=20_000, check=False)
    for number in range(80):
        calm.submit(prompt(50, number), 30)
    calm.run()
    assert all(driver.tokens(handle) == calm.tokens(handle) for handle in handles)


@settings(max_examples=8, deadline=None)
@given(ooms=st.lists(st.integers(1, 400), max_size=12), overlap=st.booleans(), mixed=st.booleans())
def test_failures_at_any_launch_lose_nothing(ooms: list[int], overlap: bool, mixed: bool) -> None:
    script = Script("scripted", 50_000, 1024, (), failures=tuple(Failure(launch) for launch in ooms))
    driver = Driver(script, chunked_prefill_size=64, enable_mixed_chunk=mixed, disable_overlap_schedule=not overlap)
    handles = [driver.submit(prompt(int(np.clip(number * 9, 1, 150)), number), 25) for number in range(12)]
    driver.run()
    endings = [driver.final(handle) for handle in handles]
    assert all(final.reason is FinishReason.LENGTH or (final.error and "memory" in final.error.message) for final in endings)
    assert sum(final.reason is FinishReason.LENGTH for final in endings) >= 12 - len(ooms)
