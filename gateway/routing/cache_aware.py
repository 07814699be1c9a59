"""Sends a request to where its first token is expected soonest.

What is cached need not be computed, what waits must be computed first, and what decodes takes its step between chunks.
Two small weights look beyond this one request: tokens computed again are lost to everybody, and a crowded worker is
slower for all who are there. While the fleet is badly out of balance the least loaded worker is taken whatever it holds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.routing.interface import Decision, RouteRequest, WorkerView
from gateway.routing.load import BalanceGuard, best, least_loaded


@dataclass(frozen=True, slots=True)
class CacheAwareSettings:
    """cache_threshold: where no worker has measured its speed, a match above this share of the prompt decides.

    recompute_weight: seconds charged per second of recomputing. crowding_weight: decode steps charged per request there.
    """

    guard: BalanceGuard = field(default_factory=BalanceGuard)
    cache_threshold: float = 0.3
    recompute_weight: float = 1.0
    crowding_weight: float = 1.0
    chunk_tokens: int = 2048
    typical_output_tokens: int = 128


class CacheAware:
    """The default policy."""

    name = "cache_aware"
    uses_prefixes = True

    def __init__(self, settings: CacheAwareSettings, rng: random.Random) -> None:
        self._settings = settings
        self._random = rng

    def choose(self, request: RouteRequest, workers: Sequence[WorkerView]) -> Decision:
        if self._settings.guard.is_imbalanced(workers):
            return self._decide(request, least_loaded(workers, self._random), "balance")
        if any(worker.prefill_tokens_per_s <= 0 for worker in workers):
            return self._by_match_rate(request, workers)
        chosen = best(workers, lambda worker: self.cost_s(request, worker), self._random)
        longest = max(worker.predicted_tokens for worker in workers)
        reason = "no_match" if longest == 0 else "match" if chosen.predicted_tokens == longest else "faster_elsewhere"
        return self._decide(request, chosen, reason)

    def forget(self, worker_id: str) -> None:
        return

    def cost_s(self, request: RouteRequest, worker: WorkerView) -> float:
        """Predicted time to first token plus what the choice costs the others, in seconds."""
        recomputed_s = _uncached(request, worker) / worker.prefill_tokens_per_s
        crowding_s = worker.load * worker.decode_step_s
        settings = self._settings
        return self.ttft_s(request, worker) + settings.recompute_weight * recomputed_s + settings.crowding_weight * crowding_s

    def ttft_s(self, request: RouteRequest, worker: WorkerView) -> float:
        """Predicted time to first token, in seconds; the worker's prefill rate must be known."""
        tokens = worker.queued_prefill_tokens + _uncached(request, worker)
        steps = math.ceil(tokens / (worker.chunk_tokens or self._settings.chunk_tokens))
        return tokens / worker.prefill_tokens_per_s + steps * worker.decode_step_s + self._slot_wait_s(request, worker)

    def _slot_wait_s(self, request: RouteRequest, worker: WorkerView) -> float:
        if not worker.max_running or worker.load < worker.max_running:
            return 0.0
        ends_per_s = worker.max_running / max(1e-9, self._settings.typical_output_tokens * worker.decode_step_s)
        return (worker.load - worker.max_running + 1) / ends_per_s

    def _by_match_rate(self, request: RouteRequest, workers: Sequence[WorkerView]) -> Decision:
        longest = max(worker.predicted_tokens for worker in workers)
        if longest > self._settings.cache_threshold * request.prompt_tokens:
            holders = [worker for worker in workers if worker.predicted_tokens == longest]
            return self._decide(request, least_loaded(holders, self._random), "match")
        return self._decide(request, least_loaded(workers, self._random), "no_match")

    def _decide(self, request: RouteRequest, worker: WorkerView, reason: str) -> Decision:
        known = worker.prefill_tokens_per_s > 0
        ttft_s = self.ttft_s(request, worker) if known else None
        return Decision(worker.id, reason, worker.matched_tokens, worker.predicted_tokens, ttft_s)


def _uncached(request: RouteRequest, worker: WorkerView) -> int:
    return max(1, request.prompt_tokens - worker.predicted_tokens)
