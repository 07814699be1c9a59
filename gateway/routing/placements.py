"""Where new tokens were lately put, as a measure of how soon each worker forgets.

A full cache gives up something for all it takes in. Where much was put lately, what is given up was used a short while
ago and may be asked for again; where little was put it is old. Sending new prompts where the pressure is small makes
the caches forget equally old things, as if they were one large cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gateway.routing.interface import WorkerView


class Placements:
    """Tokens placed per worker, fading as the fleet's caches are filled anew: no clock, so an idle fleet forgets nothing."""

    def __init__(self) -> None:
        self._placed: dict[str, float] = {}

    def add(self, worker_id: str, tokens: int, workers: Sequence[WorkerView]) -> None:
        """The worker, one of `workers`, was given this many tokens that it did not hold."""
        capacity = sum(worker.cache_tokens for worker in workers)
        if capacity <= 0:
            return
        kept = math.exp(-tokens / capacity)
        for placed in self._placed:
            self._placed[placed] *= kept
        self._placed[worker_id] = self._placed.get(worker_id, 0.0) + tokens

    def pressure(self, workers: Sequence[WorkerView]) -> dict[str, float]:
        """Worker id → tokens placed there for its size, relative to the fleet: 1 is average, 0 none."""
        capacity = sum(worker.cache_tokens for worker in workers)
        placed = sum(self._placed.get(worker.id, 0.0) for worker in workers)
        if capacity <= 0 or placed <= 0:
            return dict.fromkeys((worker.id for worker in workers), 1.0)
        mean = placed / capacity
        return {w.id: self._placed.get(w.id, 0.0) / w.cache_tokens / mean if w.cache_tokens else 1.0 for w in workers}

    def forget(self, worker_id: str) -> None:
        """The worker has left."""
        self._placed.pop(worker_id, None)
