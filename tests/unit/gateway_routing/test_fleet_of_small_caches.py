"""What routing by prefix is worth where the caches are too small for all chats, in a fleet without clock or machine."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import cache
from statistics import mean, median

import pytest

from benchmarks.simulated_fleet import MODEL, Answered, Chats, Machine, SimulatedFleet, play
from gateway.routing.factory import PolicySettings

MACHINE = Machine(cores=2, step_ms=8.0, token_us=1000.0, drift=0.5)
SEEDS = (1, 2)


@cache
def outcome(policy: str, silent: bool, concurrency: int, pool: int) -> tuple[float, float]:
    """Hit rate and median seconds to the first token, over all seeds."""
    rates, firsts = [], []
    for seed in SEEDS:
        fleet = SimulatedFleet(replace(MACHINE, pool=pool), policy, PolicySettings(), silent=silent, seed=seed)
        answers, _ = play(fleet, Chats(concurrency=concurrency), seed)
        rates.append(sum(a.cached_tokens for a in answers) / sum(a.prompt_tokens for a in answers))
        firsts += [a.first - a.sent for a in answers if a.first is not None]
    return mean(rates), median(firsts)


@pytest.mark.parametrize(("concurrency", "pool"), [(3, 8192), (6, 8192), (6, 6144)])
def test_exact_knowledge_beats_round_robin_twice_over_and_is_no_worse_than_a_guess(concurrency: int, pool: int) -> None:
    """Speeds drift by a factor of three between workers, as on a shared machine: what a worker measured once must not lead it."""
    rate, first_s = outcome("cache_aware", False, concurrency, pool)
    blind_rate, blind_first_s = outcome("round_robin", False, concurrency, pool)
    guessed_rate, _ = outcome("cache_aware", True, concurrency, pool)
    assert rate >= 1.8 * blind_rate
    assert rate >= guessed_rate
    assert first_s <= 0.7 * blind_first_s


def test_the_tree_ends_equal_to_the_caches() -> None:
    fleet = SimulatedFleet(MACHINE, "cache_aware", PolicySettings(), silent=False, seed=5)
    play(fleet, Chats(turns=3), 5)
    group = fleet.registry.group(MODEL)
    for member in fleet.members:
        held = {h for stored in member.scheduler.cache_snapshot().blocks for h in stored.hashes}
        assert group.index.tree.blocks_of(member.worker.id) == len(held) > 0
        assert all(group.index.tree.holds(member.worker.id, block) for block in held)


def test_a_new_fleet_spreads_new_chats_by_room() -> None:
    fleet = SimulatedFleet(MACHINE, "cache_aware", PolicySettings(), silent=False, seed=7)
    rng = random.Random(7)
    sent = [fleet.ask([rng.randrange(10, 50_000) for _ in range(200)], 16) for _ in range(12)]
    fleet.timeline.run(lambda: all(answer.done for answer in sent))
    placed = [member.worker for member in fleet.members for answer in sent if answer.lease and answer.lease.worker is member.worker]
    assert {worker.id: placed.count(worker) for worker in placed} == {member.worker.id: 4 for member in fleet.members}


def test_a_hot_prefix_does_not_pile_up_on_one_worker() -> None:
    """One worker alone could just serve it: a second one takes its share long before the balance guard has to."""
    fleet = SimulatedFleet(Machine(token_us=400.0, step_ms=8.0, drift=0.3), "cache_aware", PolicySettings(), silent=False, seed=1)
    rng = random.Random(1)
    hot = [rng.randrange(10, 50_000) for _ in range(1024)]
    sent: list[Answered] = []

    def arrive() -> None:
        sent.append(fleet.ask([*hot, *(rng.randrange(10, 50_000) for _ in range(60))], 32))
        if len(sent) < 200:
            fleet.timeline.after(rng.expovariate(24.0), arrive)

    arrive()
    fleet.timeline.run(lambda: len(sent) == 200 and all(answer.done for answer in sent))
    served = Counter(answer.lease.worker.id for answer in sent if answer.lease is not None)
    assert max(served.values()) < 150
    assert "balance" not in fleet.registry.group(MODEL).decisions
