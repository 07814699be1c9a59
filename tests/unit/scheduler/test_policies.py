"""The order in which waiting choices are admitted, per policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from services.scheduler import config
from services.scheduler.cache.eviction import EVICTION_POLICIES
from services.scheduler.core.messages import Namespace
from services.scheduler.core.policy import POLICIES
from tests.unit.scheduler.harness import Driver, prompt


def admitted(driver: Driver) -> list[int]:
    """Handles in the order of their start."""
    started = [(said.started[0].queue_ns, handle) for handle, said in driver.said.items() if said.started]
    return [handle for _, handle in sorted(started)]


def run_queue(policy: str, requests: list[tuple[list[int], int]], warm: Sequence[list[int]] = (), **config: Any) -> list[int]:
    """Positions (from 0) of `requests` in the order they started, one at a time."""
    driver = Driver(schedule_policy=policy, max_running_requests=1, **config)
    for tokens in warm:
        driver.submit(tokens, 1)
    driver.run()
    first = len(warm) + 1
    for tokens, max_new in requests:
        driver.submit(tokens, max_new)
    while driver.scheduler.has_work:
        driver.clock_ns += 1000
        driver.turn()
    return [handle - first for handle in admitted(driver) if handle >= first]


SYSTEM = prompt(100, 1).tolist()
OTHER = prompt(60, 2).tolist()


def table_of_prompts() -> list[tuple[list[int], int]]:
    """Uncached lengths, with SYSTEM and OTHER cached: 50, 41, 10, 120."""
    return [
        (prompt(50, 7).tolist(), 4),
        (OTHER + prompt(40, 8).tolist(), 9),
        (SYSTEM + prompt(10, 9).tolist(), 2),
        (SYSTEM + prompt(120, 10).tolist(), 30),
    ]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fcfs", [0, 1, 2, 3]),
        ("lof", [3, 1, 0, 2]),
        ("lpm", [2, 3, 1, 0]),
        ("shortest-prefill-first", [2, 1, 0, 3]),
        ("dfs-weight", [2, 1, 3, 0]),  # two wait below SYSTEM at first, then one on each branch
    ],
)
def test_order(policy: str, expected: list[int]) -> None:
    assert run_queue(policy, table_of_prompts(), warm=[SYSTEM, OTHER]) == expected


@pytest.mark.parametrize("policy", ["lpm", "dfs-weight", "hrrn", "shortest-prefill-first"])
def test_cache_aware_policies_are_fcfs_without_the_cache(policy: str) -> None:
    assert run_queue(policy, table_of_prompts(), warm=[SYSTEM, OTHER], disable_radix_cache=True) == [0, 1, 2, 3]


def test_random_is_a_seeded_shuffle() -> None:
    orders = {tuple(run_queue("random", table_of_prompts() * 2, policy_seed=seed)) for seed in range(4)}
    assert len(orders) > 1 and all(sorted(order) == list(range(8)) for order in orders)
    assert run_queue("random", table_of_prompts(), policy_seed=3) == run_queue("random", table_of_prompts(), policy_seed=3)


@pytest.mark.parametrize(("waiting", "first"), [(128, 127), (129, 0)])
@pytest.mark.parametrize("policy", ["lpm", "hrrn"])
def test_long_queues_are_served_in_order_of_arrival(policy: str, waiting: int, first: int) -> None:
    """The last of the queue is fully cached, so it goes first, unless more than 128 wait."""
    driver = Driver(schedule_policy=policy, prefill_max_requests=1, pool=20_000, check=False)
    driver.submit(SYSTEM, 1)
    driver.run()
    handles = [driver.submit(prompt(20, number + 20), 1) for number in range(waiting - 1)]
    handles.append(driver.submit(SYSTEM, 1))
    driver.turn()
    assert [handle for handle in handles if driver.said[handle].started] == [handles[first]]


def test_hrrn_favours_who_waited_while_much_was_computed() -> None:
    """Ratios 1 + 1000 / 200 = 6 and 1 + 400 / 50 = 9, and a prompt of which all but the last token is cached goes before both."""
    driver = Driver(schedule_policy="hrrn", max_running_requests=1, prefill_max_requests=1)
    driver.submit(SYSTEM, 1)
    driver.run()
    counters = driver.scheduler.counters
    counters.computed_prompt_tokens = 5000
    long = driver.submit(prompt(200, 4), 1)
    counters.computed_prompt_tokens += 600
    short = driver.submit(prompt(50, 5), 1)
    counters.computed_prompt_tokens += 400
    cached = driver.submit(SYSTEM, 1)
    while driver.scheduler.has_work:
        driver.clock_ns += 1000
        driver.turn()
    assert admitted(driver)[1:] == [cached, short, long]


def test_hrrn_lets_a_long_prompt_pass_in_the_end() -> None:
    """Short prompts that keep coming have ratio 1; what is computed meanwhile counts for the one that waits."""
    driver = Driver(schedule_policy="hrrn", max_running_requests=1)
    driver.submit(prompt(20, 1), 3)
    driver.turn()
    long = driver.submit(prompt(200, 2), 3)
    for number in range(3, 40):
        driver.submit(prompt(20, number), 3)
        for _ in range(3):
            driver.turn()
    assert driver.said[long].started
    driver.run()


def four_alike(policy: str, **config: Any) -> list[list[int]]:
    driver = Driver(schedule_policy=policy, **config)
    common = prompt(100, 1).tolist()
    for number in range(4):
        driver.submit(common + prompt(8, 50 + number).tolist(), 3)
    driver.run()
    return [plan.extend_lens.tolist() for plan in driver.engine.plans if plan.mode == 1]


@pytest.mark.parametrize("policy", ["lpm", "hrrn", "shortest-prefill-first"])
def test_one_computes_a_common_prefix_for_the_round(policy: str) -> None:
    assert four_alike(policy) == [[108], [8, 8, 8]]


@pytest.mark.parametrize("policy", ["lpm", "hrrn", "shortest-prefill-first"])
def test_a_common_prefix_of_several_chunks_is_computed_once(policy: str) -> None:
    """The others wait until its last chunk, in which there would be room for one of them."""
    driver = Driver(schedule_policy=policy, chunked_prefill_size=128)
    common = prompt(330, 1).tolist()
    handles = [driver.submit(common + prompt(8, 50 + number).tolist(), 3) for number in range(4)]
    driver.run()
    assert [plan.extend_lens.tolist() for plan in driver.engine.plans if plan.mode == 1] == [[128], [128], [82], [8, 8, 8]]
    assert [driver.said[handle].started[0].cached_tokens for handle in handles] == [0, 330, 330, 330]


def test_who_waits_for_a_prefix_goes_on_when_its_first_computation_is_cancelled() -> None:
    driver = Driver(schedule_policy="lpm", chunked_prefill_size=128)
    common = prompt(330, 1).tolist()
    first, *others = [driver.submit(common + prompt(8, 50 + number).tolist(), 3) for number in range(4)]
    driver.turn()
    driver.turn()
    driver.scheduler.cancel(first)
    driver.run()
    plain = Driver(disable_radix_cache=True)
    alone = [plain.submit(common + prompt(8, 50 + number).tolist(), 3) for number in range(4)]
    plain.run()
    assert [driver.tokens(handle) for handle in others] == [plain.tokens(handle) for handle in alone[1:]]
    assert [driver.said[handle].started[0].cached_tokens for handle in others] == [256, 330, 330]


@pytest.mark.parametrize("policy", ["fcfs", "lof", "dfs-weight"])
def test_other_policies_do_not_wait_for_prefixes(policy: str) -> None:
    assert four_alike(policy) == [[108] * 4]
    assert four_alike(policy, in_round_prefix_sharing=True) == [[108], [8, 8, 8]]


def test_short_common_prefixes_are_not_worth_a_round() -> None:
    driver = Driver(schedule_policy="lpm")
    common = prompt(31, 1).tolist()
    for number in range(3):
        driver.submit(common + prompt(40, 50 + number).tolist(), 2)
    driver.run()
    assert driver.engine.plans[0].extend_lens.tolist() == [71, 71, 71]


def test_shortest_prefill_first_lets_short_prompts_pass_a_chunk() -> None:
    driver = Driver(schedule_policy="shortest-prefill-first", chunked_prefill_size=128, pool=4096)
    long = driver.submit(prompt(1000, 1), 4)
    driver.turn()
    short = [driver.submit(prompt(12, 10 + number), 4) for number in range(3)]
    driver.turn()
    assert all(driver.said[handle].started for handle in short)
    assert driver.engine.plans[1].extend_lens.tolist() == [92, 12, 12, 12]
    driver.run()
    assert len(driver.tokens(long)) == 4


def test_waiting_prefixes_outlive_an_eviction_wave() -> None:
    """The waiting head's prefix is older than other entries, but is marked as used every 32 rounds."""
    driver = Driver(pool=700, max_running_requests=1, check=False)
    cached, newer = prompt(200, 1), prompt(200, 2)
    for tokens in (cached, newer):
        driver.submit(tokens, 1)
        driver.run()
    runner = driver.submit(prompt(10, 3), 280)
    driver.turn()
    head = driver.submit(cached, 1)
    for _ in range(60):
        driver.turn()
    driver.scheduler._state.cache.groups[0].free(driver.scheduler._state.cache.prefixes.evict(150)[0])
    driver.run()
    assert driver.said[head].started[0].cached_tokens == 199
    assert len(driver.tokens(runner)) == 280


def test_a_namespace_is_part_of_the_key() -> None:
    driver = Driver()
    tokens = prompt(64, 1)
    spaces = [Namespace(), Namespace(adapter=b"x"), Namespace(cache_salt=b"s"), Namespace(extra_key="k"), Namespace(cache_salt=b"s")]
    cached = []
    for space in spaces:
        handle = driver.submit(tokens, 2, namespace=space)
        driver.run()
        cached.append(driver.said[handle].started[0].cached_tokens)
    assert cached == [0, 0, 0, 0, 63]


def test_unknown_policies_and_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="schedule_policy"):
        Driver(schedule_policy="fifo")
    for policy in set(POLICIES) - {"fcfs", "lof"}:
        with pytest.raises(ValueError, match="priority"):
            Driver(schedule_policy=policy, enable_priority_scheduling=True)


def test_the_flags_offer_what_there_is() -> None:
    assert set(config.POLICIES) == set(POLICIES)
    assert set(config.EVICTIONS) == set(EVICTION_POLICIES)


def test_a_repeated_queue_needs_no_new_matching(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(schedule_policy="lpm", max_running_requests=1, check=False)
    driver.submit(prompt(10, 1), 100)
    driver.turn()
    for number in range(20):
        driver.submit(prompt(300, 2 + number), 1)
    driver.turn()
    prefixes = driver.scheduler._state.cache.prefixes
    looked_up: list[object] = []
    monkeypatch.setattr(prefixes, "peek", lambda *arguments: looked_up.append(arguments))
    for _ in range(10):
        driver.turn()
    assert not looked_up
    assert np.all(np.array([choice.hit_length for choice in driver.scheduler._state.queue]) == 0)
