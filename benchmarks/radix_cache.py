"""What the prefix tree costs an admission: `python -m benchmarks.radix_cache`.

Prompts of one length share their first half. Printed is CPU time: looking a cached prompt up; looking up, locking and adding
the other half of a new one; evicting one node; and the first two as a share of what an admission may cost, 50 µs and 20 ns a
token.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from services.scheduler.cache.events import EventLog
from services.scheduler.cache.eviction import make_policy
from services.scheduler.cache.radix_cache import RadixCache

LENGTHS = (16, 256, 1000, 8000, 32_000)
PROMPTS = 200


def best_us(work: Callable[[int], object]) -> float:
    """Lower quartile of the CPU time of `work(0)`, `work(1)`, …"""
    samples = []
    for number in range(PROMPTS):
        began = time.thread_time_ns()
        work(number)
        samples.append((time.thread_time_ns() - began) / 1e3)
    return float(np.percentile(samples, 25))


def measure(length: int) -> tuple[float, float, float]:
    """Microseconds of a match, of taking a new prompt in, and of an eviction."""
    tree = RadixCache(make_policy("lru"), lambda _: 0, EventLog(enabled=False))
    random = np.random.default_rng(length)
    half = length // 2
    shared = random.integers(1, 30_000, half).astype(np.int32)
    prompts = [np.concatenate((shared, random.integers(1, 30_000, length - half).astype(np.int32))) for _ in range(PROMPTS)]

    def take_in(number: int) -> None:
        match = tree.match("", prompts[number])
        tree.lock(match.node)
        tree.insert(match.node, prompts[number], (prompts[number][match.length :],))
        tree.unlock(match.node)

    taken = best_us(take_in)
    found = best_us(lambda number: tree.match("", prompts[number]))
    gone = best_us(lambda _: tree.evict(length - half))
    return found, taken, gone


def main() -> None:
    print(f"{'prompt':>8} {'match':>9} {'take in':>9} {'evict':>9} {'share of an admission':>22}")
    for length in LENGTHS:
        found, taken, gone = measure(length)
        print(f"{length:>8} {found:>6.1f} µs {taken:>6.1f} µs {gone:>6.1f} µs {taken / (50 + 0.020 * length):>22.0%}")


if __name__ == "__main__":
    main()
