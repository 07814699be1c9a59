"""Prefix reuse as requests see it, and what it does to the pool."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from services.scheduler.core.messages import CacheLimit
from services.scheduler.engine.script import Script
from tests.unit.scheduler.harness import Driver, prompt


def cached(driver: Driver, handle: int) -> int:
    return driver.said[handle].started[0].cached_tokens


def test_a_shared_prefix_is_held_once() -> None:
    driver = Driver()
    common = prompt(500, 1).tolist()
    driver.submit([*common, 1, 2, 3], 60)
    driver.turn()
    alone = driver.scheduler.load().kv_used_tokens
    driver.submit([*common, 4, 5, 6], 60)
    driver.turn()
    assert driver.scheduler.load().kv_used_tokens == alone + 3
    driver.run()


@pytest.mark.parametrize("page", [1, 16])
def test_equal_prompts_of_one_batch_are_counted_once_afterwards(page: int) -> None:
    driver = Driver(page=page)
    handles = [driver.submit(prompt(100), 5) for _ in range(3)]
    driver.turn()
    assert driver.engine.plans[0].extend_lens.tolist() == [100, 100, 100]
    driver.run()
    assert driver.tokens(handles[0]) == driver.tokens(handles[1]) == driver.tokens(handles[2])
    load = driver.scheduler.load()
    assert load.kv_evictable_tokens == 104 // page * page


def test_the_cache_shrinks_for_a_large_request() -> None:
    driver = Driver(pool=1100)
    for number in range(5):
        driver.submit(prompt(200, number), 1)
        driver.run()
    assert driver.scheduler.load().kv_evictable_tokens == 1000
    handle = driver.submit(prompt(900, 9), 100)
    driver.run()
    assert len(driver.tokens(handle)) == 100
    assert driver.scheduler.evicted_tokens >= 899
    assert driver.scheduler.evicted_tokens == 1000 + 999 - driver.scheduler.load().kv_evictable_tokens


@pytest.mark.parametrize(("start", "expected", "limit"), [(0, 0, 1), (100, 99, 1), (None, 299, 0), (5000, 299, 1)])
def test_prompt_logprobs_limit_reuse(start: int | None, expected: int, limit: int) -> None:
    driver = Driver()
    driver.submit(prompt(300), 1)
    driver.run()
    handle = driver.submit(prompt(300), 1, prompt_logprobs_from=start)
    driver.run()
    assert cached(driver, handle) == expected
    assert driver.said[handle].started[0].cache_limit is CacheLimit(limit)
    parts = driver.said[handle].prompt_logprobs
    if start is None:
        assert parts == []
    else:
        first = max(start, 1)
        assert sum(len(part.logprobs) for part in parts) == max(300 - first, 0)
        ids = np.concatenate([part.token_ids for part in parts])
        assert ids.tolist() == prompt(300)[first:].tolist()
        assert parts[-1].last


def test_pages_bound_what_is_reused() -> None:
    driver = Driver(page=16)
    first = driver.submit(prompt(100), 4)
    driver.run()
    second = driver.submit(prompt(100), 4)
    driver.run()
    assert cached(driver, second) == 96
    plain = Driver()
    reference = plain.submit(prompt(100), 4)
    plain.run()
    assert driver.tokens(first) == driver.tokens(second) == plain.tokens(reference)


def test_prompt_layout_decides_what_is_reused() -> None:
    """A changing id at the start, at the end, or nowhere: 5, all but the tail, all but one token are cached."""
    script = Script(vocab_size=50_000, context_length=4096, eos_token_ids=())
    body, head = prompt(2900, 1).tolist(), prompt(5, 2).tolist()
    layouts: dict[str, Callable[[int], list[int]]] = {
        "start": lambda i: [*head, 100 + i, *body],
        "end": lambda i: [*head, *body, 100 + i, 7, 8],
        "stable": lambda i: [*head, *body],
    }
    found = {}
    for name, make in layouts.items():
        driver = Driver(script, pool=12_000, check=False)
        driver.submit(make(0), 1)
        driver.run()
        handle = driver.submit(make(1), 1)
        driver.run()
        found[name] = cached(driver, handle)
    assert found == {"start": 5, "end": 2905, "stable": 2904}


def test_used_evictable_and_free_are_the_pool_in_every_turn() -> None:
    driver = Driver(pool=600, init_new_token_ratio=0.05)
    for number in range(12):
        driver.submit(prompt(40, number % 5), 40, ignore_eos=False)
    while driver.scheduler.has_work:
        driver.turn()
        load = driver.scheduler.load()
        assert load.kv_used_tokens + load.kv_evictable_tokens + load.kv_free_tokens == load.kv_total_tokens == 600


def test_cache_events_come_with_the_turns_and_match_the_snapshot() -> None:
    driver = Driver(cache_epoch=5)
    driver.submit(prompt(100), 10)
    driver.run()
    events = driver.scheduler.drain_cache_events()
    snapshot = driver.scheduler.cache_snapshot()
    assert (events.epoch, events.first_seq) == (5, 0) and snapshot.next_seq == len(events.events)
    told = [block for event in events.events for block in getattr(event, "hashes", ())]
    assert sorted(told) == sorted(block for stored in snapshot.blocks for block in stored.hashes)
    assert len(told) == 109 // 16
    silent = Driver(publish_cache_events=False)
    silent.submit(prompt(100), 10)
    silent.run()
    assert silent.scheduler.drain_cache_events().events == [] and silent.scheduler.cache_snapshot().blocks == []


@pytest.mark.parametrize("page", [1, 16])
def test_the_next_turn_of_a_chat_finds_prompt_and_answer(page: int) -> None:
    """All of turn 1 but its last token, which was never computed, in whole pages."""
    driver = Driver(page=page)
    first = driver.submit(prompt(50, 1), 30)
    driver.run()
    second = driver.submit([*prompt(50, 1).tolist(), *driver.tokens(first), 5, 6, 7], 4)
    driver.run()
    assert cached(driver, second) == 79 // page * page


def test_outputs_stay_out_of_the_cache_on_request() -> None:
    """The next turn of a chat finds the prompt only, whether the output was decoded or computed again after a retraction."""
    driver = Driver(strip_thinking_cache=True, pool=90, init_new_token_ratio=0.02, chunked_prefill_size=16)
    first = driver.submit(prompt(20, 1), 30, ignore_eos=False)
    second = driver.submit(prompt(20, 2), 30, ignore_eos=False)
    driver.run()
    assert driver.scheduler.counters.retractions
    for handle, start in ((first, 1), (second, 2)):
        history = [*prompt(20, start).tolist(), *driver.tokens(handle)]
        again = driver.submit(history, 1)
        driver.run()
        assert driver.said[again].started[0].cached_tokens == 20
