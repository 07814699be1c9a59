"""Sends a request to where its first token is expected soonest, weighed with what that costs the others.

What is cached need not be computed, what waits must be computed first, and what decodes takes its step between chunks.
Whoever is at a worker stands still while a prompt is computed there, a crowded worker is slower for all, and what does not
fit evicts what may be wanted again. While the fleet is badly out of balance the least loaded worker is taken whatever it holds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.routing.interface import Decision, RouteRequest, WorkerView
from gateway.routing.load import BalanceGuard, best, least_loaded
from gateway.routing.placements import Placements


@dataclass(frozen=True, slots=True)
class CacheAwareSettings:
    """cache_threshold: where no worker has measured its speed, a match above this share of the prompt decides.

    delay_weight: seconds charged per second that a request at the worker, or the next to come, stands still while the prompt
    is computed.
    crowding_weight: decode steps charged per request there.
    eviction_weight: seconds charged per second of recomputing what has to be forgotten, where pressure is average. More than
    one, because what comes back evicts something in turn.
    """

    guard: BalanceGuard = field(default_factory=BalanceGuard)
    cache_threshold: float = 0.3
    delay_weight: float = 0.5
    crowding_weight: float = 1.0
    eviction_weight: float = 2.0
    chunk_tokens: int = 2048
    typical_output_tokens: int = 128


class CacheAware:
    """The default policy."""

    name = "cache_aware"
    uses_prefixes = True

    def __init__(self, settings: CacheAwareSettings, rng: random.Random) -> None:
        self._settings = settings
        self._random = rng
        self._placements = Placements()

    def choose(self, request: RouteRequest, workers: Sequence[WorkerView]) -> Decision:
        if self._settings.guard.is_imbalanced(workers):
            return self._decide(request, least_loaded(workers, self._random), "balance", workers)
        if any(worker.prefill_tokens_per_s <= 0 for worker in workers):
            return self._by_match_rate(request, workers)
        pressure = self._placements.pressure(workers)
        chosen = best(workers, lambda worker: self.cost_s(request, worker, pressure[worker.id]), self._random)
        longest = max(worker.predicted_tokens for worker in workers)
        reason = "no_match" if longest == 0 else "match" if chosen.predicted_tokens == longest else "faster_elsewhere"
        return self._decide(request, chosen, reason, workers)

    def forget(self, worker_id: str) -> None:
        self._placements.forget(worker_id)

    def cost_s(self, request: RouteRequest, worker: WorkerView, pressure: float = 1.0) -> float:
        """Predicted time to first token plus what the choice costs the others, in seconds."""
        settings = self._settings
        delayed_s = settings.delay_weight * (1 + worker.load) * _uncached(request, worker) / worker.prefill_tokens_per_s
        forgotten_s = settings.eviction_weight * pressure * self._evicted(request, worker) / worker.prefill_tokens_per_s
        crowding_s = settings.crowding_weight * worker.load * worker.decode_step_s
        return self.ttft_s(request, worker) + delayed_s + forgotten_s + crowding_s

    def _evicted(self, request: RouteRequest, worker: WorkerView) -> int:
        """Cached tokens the worker has to give up for the request."""
        if not worker.cache_tokens:
            return 0
        output = min(request.max_new_tokens, self._settings.typical_output_tokens)
        return max(0, _uncached(request, worker) + output - worker.free_tokens)

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
            return self._decide(request, least_loaded(holders, self._random), "match", workers)
        return self._decide(request, least_loaded(workers, self._random), "no_match", workers)

    def _decide(self, request: RouteRequest, worker: WorkerView, reason: str, workers: Sequence[WorkerView]) -> Decision:
        self._placements.add(worker.id, _uncached(request, worker), workers)
        known = worker.prefill_tokens_per_s > 0
        ttft_s = self.ttft_s(request, worker) if known else None
        return Decision(worker.id, reason, worker.matched_tokens, worker.predicted_tokens, ttft_s)


def _uncached(request: RouteRequest, worker: WorkerView) -> int:
    return max(1, request.prompt_tokens - worker.predicted_tokens)
