"""What each policy promises."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.routing.bucket import Bucket, boundaries
from gateway.routing.cache_aware import CacheAware, CacheAwareSettings
from gateway.routing.factory import POLICIES, PolicySettings, make_policy
from gateway.routing.hashing import ConsistentHashing, PrefixHash, ranked
from gateway.routing.interface import Policy, RouteRequest, WorkerView
from gateway.routing.load import BalanceGuard
from gateway.routing.manual import Manual
from gateway.routing.simple import RoundRobin


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def make(name: str, clock: Clock | None = None) -> Policy:
    return make_policy(name, PolicySettings(), clock or Clock(), random.Random(5))


def fleet(*loads: int) -> list[WorkerView]:
    return [WorkerView(f"w{i}", load=load, prefill_tokens_per_s=1000.0, decode_step_s=0.01) for i, load in enumerate(loads)]


PLAIN = RouteRequest("m", prompt_tokens=100, block_hashes=tuple(range(6)))


@settings(deadline=None)
@given(
    name=st.sampled_from(POLICIES),
    loads=st.lists(st.integers(0, 300), min_size=1, max_size=9),
    prompt=st.integers(1, 5000),
    key=st.sampled_from(["", "k"]),
    rate=st.sampled_from([0.0, 900.0]),
    seed=st.integers(0, 1000),
)
def test_every_policy_chooses_one_of_the_workers(name: str, loads: list[int], prompt: int, key: str, rate: float, seed: int) -> None:
    rng = random.Random(seed)
    policy = make(name)
    views = [
        WorkerView(f"w{i}", load, rng.randrange(9000), 16 * rng.randrange(50), 16 * 60, rate, 0.01, max_running=100)
        for i, load in enumerate(loads)
    ]
    request = RouteRequest("m", prompt, tuple(range(prompt // 16)), 10, key)
    for _ in range(5):
        decision = policy.choose(request, views)
        assert decision.worker_id in {view.id for view in views}
        assert decision.reason
    policy.forget("w0")
    assert policy.choose(request, views).worker_id in {view.id for view in views}


def test_names_are_the_policies_own() -> None:
    assert [make(name).name for name in POLICIES] == list(POLICIES)
    with pytest.raises(ValueError, match="known are cache_aware"):
        make("nonsense")


# ---------------------------------------------------------------- balance and the simple ones


@pytest.mark.parametrize(
    ("most", "least", "imbalanced"),
    [(65, 0, True), (64, 0, False), (100, 64, False), (300, 210, False), (300, 190, True)],
)
def test_out_of_balance_takes_both_tests(most: int, least: int, imbalanced: bool) -> None:
    assert BalanceGuard(64, 1.5).is_imbalanced(fleet(least, most)) is imbalanced


def test_round_robin_takes_turns() -> None:
    policy = RoundRobin()
    assert [policy.choose(PLAIN, fleet(9, 0, 0)).worker_id for _ in range(6)] == ["w0", "w1", "w2"] * 2


def test_least_load_and_power_of_two_prefer_the_idle() -> None:
    workers = fleet(5, 1, 9, 1)
    assert {make("least_load").choose(PLAIN, workers).worker_id for _ in range(20)} <= {"w1", "w3"}
    policy = make("power_of_two")
    chosen = Counter(policy.choose(PLAIN, workers).worker_id for _ in range(400))
    assert chosen["w2"] == 0, "the busiest of all loses to any other"
    assert chosen["w0"] < chosen["w1"]


# ---------------------------------------------------------------- cache aware


def cache_aware(**settings: float) -> CacheAware:
    return CacheAware(CacheAwareSettings(**settings), random.Random(1))  # type: ignore[arg-type]


def view(id: str, **values: float) -> WorkerView:
    return WorkerView(id, **{"prefill_tokens_per_s": 1000.0, "decode_step_s": 0.01, "chunk_tokens": 512, **values})  # type: ignore[arg-type]


def choose(workers: Sequence[WorkerView], prompt: int = 1000, policy: CacheAware | None = None) -> tuple[str, str]:
    decision = (policy or cache_aware()).choose(RouteRequest("m", prompt), workers)
    return decision.worker_id, decision.reason


def test_the_longest_match_wins_among_idle_workers() -> None:
    workers = [view("a", matched_tokens=320, predicted_tokens=320), view("b", matched_tokens=640, predicted_tokens=640), view("c")]
    assert choose(workers) == ("b", "match")
    assert choose([view("a"), view("c")])[1] == "no_match"


def test_a_long_queue_outweighs_a_match_and_a_short_one_does_not() -> None:
    holder = view("a", predicted_tokens=512, queued_prefill_tokens=5000)
    assert choose([holder, view("b")]) == ("b", "faster_elsewhere")
    assert choose([view("a", predicted_tokens=512, queued_prefill_tokens=200), view("b")]) == ("a", "match")


def test_faster_workers_get_the_unique_prompts() -> None:
    assert choose([view("slow", prefill_tokens_per_s=500.0), view("fast", prefill_tokens_per_s=4000.0)])[0] == "fast"


def test_a_long_wait_for_a_slot_outweighs_a_match() -> None:
    full = view("full", predicted_tokens=960, load=70, max_running=32)
    assert choose([full, view("b", load=2, max_running=32)], prompt=1000)[0] == "b"


def test_the_guard_beats_any_match() -> None:
    assert choose([view("a", predicted_tokens=960, load=65), view("b")]) == ("b", "balance")
    assert choose([view("a", predicted_tokens=960, load=64), view("b")])[1] != "balance"
    assert choose([view("a", predicted_tokens=960, load=30), view("b")]) == ("a", "match")


@pytest.mark.parametrize(("matched", "reason"), [(300, "no_match"), (310, "match")])
def test_without_measured_speed_the_match_rate_decides(matched: int, reason: str) -> None:
    workers = [view("a", predicted_tokens=matched, load=1, prefill_tokens_per_s=0.0), view("b", prefill_tokens_per_s=0.0)]
    assert choose(workers) == ("a" if reason == "match" else "b", reason)


def test_the_predicted_time_is_what_the_parts_add_up_to() -> None:
    policy = cache_aware()
    worker = view("a", predicted_tokens=200, queued_prefill_tokens=224)
    assert policy.ttft_s(RouteRequest("m", 1000), worker) == pytest.approx(1.024 + 2 * 0.01)


def test_a_hot_prefix_is_spread_before_the_guard_has_to_step_in() -> None:
    """Equal prompts that stay: the crowd at the holder ends up costing more than one more copy of the prefix."""
    policy = cache_aware()
    load = {"a": 0, "b": 0, "c": 0}
    holds = {"a": 512}
    for _ in range(150):
        workers = [view(id, load=n, predicted_tokens=holds.get(id, 0), decode_step_s=0.02) for id, n in load.items()]
        chosen = policy.choose(RouteRequest("m", 528), workers)
        assert chosen.reason != "balance"
        load[chosen.worker_id] += 1
        holds[chosen.worker_id] = 512
    assert max(load.values()) < 64
    assert min(load.values()) > 0


@settings(deadline=None)
@given(
    prompt=st.integers(1, 8000),
    held=st.integers(0, 8000),
    queue=st.integers(0, 20_000),
    load=st.integers(0, 200),
    free=st.integers(0, 9000),
    rate=st.floats(50, 50_000),
    pressure=st.floats(0, 3),
)
def test_cost_moves_the_right_way_with_everything_it_looks_at(
    prompt: int, held: int, queue: int, load: int, free: int, rate: float, pressure: float
) -> None:
    policy, request = cache_aware(), RouteRequest("m", prompt, max_new_tokens=64)
    worker = view(
        "a", predicted_tokens=min(held, prompt), queued_prefill_tokens=queue, load=load, free_tokens=free, cache_tokens=9000,
        prefill_tokens_per_s=rate, max_running=128,
    )  # fmt: skip
    cost = policy.cost_s(request, worker, pressure)
    for worse in (
        replace(worker, predicted_tokens=worker.predicted_tokens // 2),
        replace(worker, queued_prefill_tokens=queue + 500),
        replace(worker, load=load + 1),
        replace(worker, free_tokens=free // 2),
        replace(worker, prefill_tokens_per_s=rate / 2),
    ):
        assert policy.cost_s(request, worse, pressure) >= cost
    assert policy.cost_s(request, worker, pressure + 1) >= cost
    assert cost >= policy.ttft_s(request, worker)


@settings(deadline=None)
@given(st.integers(100, 4000), st.integers(0, 4), st.floats(0.5, 2.0))
def test_among_idle_workers_with_full_caches_whoever_holds_half_the_prompt_keeps_it(prompt: int, home: int, slower: float) -> None:
    """Moving costs the prompt twice: computed again, and something forgotten for the copy."""
    workers = [view(f"w{i}", cache_tokens=8192) for i in range(5)]
    workers[home] = replace(workers[home], predicted_tokens=prompt // 2 + 1, prefill_tokens_per_s=1000.0 / slower)
    assert choose(workers, prompt) == (f"w{home}", "match")


def test_new_prompts_go_where_nothing_has_to_be_forgotten_for_them() -> None:
    full, roomy = view("full", cache_tokens=8192), view("roomy", cache_tokens=8192, free_tokens=4000, load=1, queued_prefill_tokens=300)
    assert choose([full, roomy]) == ("roomy", "no_match")


def test_full_caches_of_unequal_size_are_filled_by_size() -> None:
    policy = cache_aware()
    workers = [view("small", cache_tokens=10_000), view("large", cache_tokens=30_000)]
    went = Counter(policy.choose(RouteRequest("m", 500), workers).worker_id for _ in range(400))
    assert 2.5 < went["large"] / went["small"] < 3.5


# ---------------------------------------------------------------- keys


@settings(deadline=None)
@given(st.integers(2, 12), st.integers(0, 11))
def test_when_a_worker_leaves_only_its_keys_move(count: int, leaver: int) -> None:
    workers = fleet(*[0] * count)
    left = [worker for i, worker in enumerate(workers) if i != leaver % count]
    for key in map(str, range(50)):
        first = ranked(key, workers)[0]
        if first in left:
            assert ranked(key, left)[0] == first


def test_consistent_hashing_uses_the_key_then_the_tenant_then_load() -> None:
    policy = ConsistentHashing(random.Random(1))
    workers = fleet(0, 7, 3, 9)
    by_key = {policy.choose(RouteRequest("m", 9, routing_key="k", tenant=t), workers).worker_id for t in "abcdef"}
    assert len(by_key) == 1
    assert len({policy.choose(RouteRequest("m", 9, tenant=str(t)), workers).worker_id for t in range(40)}) == 4
    assert policy.choose(RouteRequest("m", 9), workers).worker_id == "w0"


def test_prefix_hash_looks_at_the_prefix_only_and_passes_over_the_overloaded() -> None:
    policy = PrefixHash(random.Random(1), prefix_blocks=2)
    workers = fleet(0, 0, 0, 0)
    ends = {policy.choose(RouteRequest("m", 99, (1, 2, tail)), workers).worker_id for tail in range(20)}
    assert len(ends) == 1
    home = ends.pop()
    busy = [WorkerView(w.id, load=10 if w.id == home else 1) for w in workers]
    decision = policy.choose(RouteRequest("m", 99, (1, 2, 3)), busy)
    assert decision.worker_id != home
    assert decision.reason == "passed_over"


def test_manual_keeps_a_key_until_its_worker_is_gone_or_it_has_idled() -> None:
    clock = Clock()
    policy = Manual(clock, random.Random(1), idle_s=100.0)
    request = RouteRequest("m", 9, routing_key="chat")
    home = policy.choose(request, fleet(0, 5)).worker_id
    assert home == "w0"
    assert policy.choose(request, fleet(50, 0)).worker_id == "w0", "whatever the load"
    away = RouteRequest("m", 9, routing_key="chat", excluded=frozenset({"w0"}))
    assert policy.choose(away, fleet(50, 0)[1:]).worker_id == "w1"
    assert policy.choose(request, fleet(50, 0)).worker_id == "w0", "a retry elsewhere does not move the key"
    assert policy.choose(request, fleet(0, 0)[1:]).reason == "moved"
    assert policy.choose(request, fleet(0, 9)).worker_id == "w1"
    clock.now += 101
    assert policy.choose(request, fleet(0, 9)).reason == "new_key"
    assert len(policy) == 1


def test_manual_is_bounded() -> None:
    policy = Manual(Clock(), random.Random(1), max_keys=10)
    for i in range(100):
        policy.choose(RouteRequest("m", 9, routing_key=str(i)), fleet(0, 0))
    assert len(policy) == 10


# ---------------------------------------------------------------- bucket


def test_short_and_long_prompts_go_to_different_workers() -> None:
    policy = Bucket(BalanceGuard(), random.Random(1), redraw=1)
    for _ in range(50):
        policy.choose(RouteRequest("m", 100), fleet(0, 0))
        policy.choose(RouteRequest("m", 3000), fleet(0, 0))
    short = policy.choose(RouteRequest("m", 90), fleet(0, 0)).worker_id
    long = policy.choose(RouteRequest("m", 3100), fleet(0, 0)).worker_id
    assert (short, long) == ("w0", "w1")
    assert policy.choose(RouteRequest("m", 90), fleet(100, 0)).reason == "balance"


@settings(deadline=None)
@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=200), st.integers(1, 8))
def test_boundaries_never_decrease_and_are_one_fewer_than_buckets(lengths: list[int], buckets: int) -> None:
    bounds = boundaries(lengths, buckets)
    assert len(bounds) == buckets - 1
    assert bounds == sorted(bounds)
