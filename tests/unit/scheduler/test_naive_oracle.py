"""Every turn of the scheduler against a naive one: who starts, who decodes, who is put back, and what is reserved."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.engine.script import Script
from tests.unit.scheduler.harness import Driver, prompt
from tests.unit.scheduler.naive_scheduler import NaiveScheduler, Wanted

CONTEXT = 200
OPERATIONS = st.one_of(
    st.tuples(st.just("submit"), st.integers(1, 90), st.integers(0, 100), st.booleans()),
    st.tuples(st.just("cancel"), st.integers(0, 30), st.just(0), st.just(False)),
    st.tuples(st.just("turns"), st.integers(1, 25), st.just(0), st.just(False)),
)


@settings(max_examples=12, deadline=None)
@given(
    pool=st.integers(100, 500),
    places=st.integers(1, 8),
    batch_tokens=st.sampled_from([CONTEXT, 10_000]),
    start_ratio=st.sampled_from([0.05, 0.7]),
    operations=st.lists(OPERATIONS, min_size=20, max_size=80),
)
def test_every_turn_is_what_the_rules_say(
    pool: int, places: int, batch_tokens: int, start_ratio: float, operations: list[tuple[str, int, int, bool]]
) -> None:
    script = Script(vocab_size=50_000, context_length=CONTEXT, eos_token_ids=())
    driver = Driver(
        script,
        pool=pool,
        rows=places,
        chunked_prefill_size=-1,
        max_prefill_tokens=batch_tokens,
        disable_radix_cache=True,
        init_new_token_ratio=start_ratio,
        check=False,
    )
    total = driver.scheduler.load().kv_total_tokens
    naive = NaiveScheduler(total, places, batch_tokens, start_ratio, start_ratio)
    for kind, number, max_new, certain in [*operations, ("turns", 3000, 0, False)]:
        if kind == "submit" and number + 1 <= total:
            handle = driver.submit(prompt(number, len(driver.said)), max_new, ignore_eos=certain)
            naive.submit(Wanted(handle, number, min(max_new, CONTEXT - number), certain))
        elif kind == "cancel":
            handle = len(driver.said) - number
            driver.scheduler.cancel(handle)
            naive.cancel(handle)
        elif kind == "turns":
            for _ in range(number):
                if not driver.scheduler.has_work:
                    break
                compare_turn(driver, naive)
    assert not driver.scheduler.has_work and not naive.running and not naive.waiting
    assert {handle: said.final.reason.name for handle, said in driver.said.items() if said.final} == naive.ended


def compare_turn(driver: Driver, naive: NaiveScheduler) -> None:
    before = len(driver.engine.plans)
    driver.turn()
    planned = [plan.extend_lens.tolist() for plan in driver.engine.plans[before:]]
    expected = naive.turn()
    assert planned == ([expected] if expected else [])
    load = driver.scheduler.load()
    assert (load.running, load.waiting, load.kv_used_tokens) == (len(naive.running), len(naive.waiting), naive.used)
    assert load.new_token_ratio == pytest.approx(naive.ratio)
    assert driver.scheduler.counters.retractions == naive.retractions
