"""Comparing workers by load."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.routing.interface import WorkerView


@dataclass(frozen=True, slots=True)
class BalanceGuard:
    """The fleet is out of balance when the busiest worker is both `absolute` above and `relative` times the idlest."""

    absolute: int = 64
    relative: float = 1.5

    def is_imbalanced(self, workers: Sequence[WorkerView]) -> bool:
        loads = [worker.load for worker in workers]
        most, least = max(loads), min(loads)
        return most - least > self.absolute and most > self.relative * least


def best(workers: Sequence[WorkerView], cost: Callable[[WorkerView], float], rng: random.Random) -> WorkerView:
    """The worker with the smallest cost, one at random among equals."""
    costs = [cost(worker) for worker in workers]
    least = min(costs)
    return rng.choice([worker for worker, its in zip(workers, costs, strict=True) if its == least])


def least_loaded(workers: Sequence[WorkerView], rng: random.Random) -> WorkerView:
    """Fewest requests in flight; among equals the longest match, then chance."""
    least = min(worker.load for worker in workers)
    return best([worker for worker in workers if worker.load == least], lambda worker: -worker.predicted_tokens, rng)
