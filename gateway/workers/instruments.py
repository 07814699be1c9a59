"""The fleet's numbers as metrics, read when they are scraped."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence

from gateway.resilience.admission import UNLIMITED, Admission
from gateway.resilience.circuit_breaker import BreakerState
from gateway.resilience.resume import ResumeTotals
from gateway.resilience.retry import RetryBudget
from gateway.workers.cache_subscriber import CacheSubscriber
from gateway.workers.membership import Membership
from gateway.workers.registry import Registry
from gateway.workers.state import WorkerState
from gateway.workers.worker import Worker
from services.common.metrics import Metrics

Rows = Iterable[tuple[Sequence[str], float]]

_STATES = {
    WorkerState.PENDING: "starting",
    WorkerState.READY: "ready",
    WorkerState.NOT_READY: "unhealthy",
    WorkerState.DRAINING: "draining",
    WorkerState.FAILED: "unhealthy",
}
_BREAKERS = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}


class _Forgetful:
    """Observer of the registry that makes room for the series of new workers when old ones leave."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def worker_added(self, worker: Worker) -> None:
        """Its series begin with its first numbers."""

    def worker_removed(self, worker: Worker) -> None:
        self._metrics.forget(worker=worker.id)

    def worker_changed(self, worker: Worker, before: WorkerState) -> None:
        """States are read at the scrape."""


def publish_routing(metrics: Metrics, registry: Registry) -> None:
    """Workers, breakers and decisions."""

    def decisions() -> Rows:
        return [((g.policy.name, reason), count) for g in registry.groups() for reason, count in g.decisions.items()]

    def transitions() -> Rows:
        return [((w.id, state.value), count) for w in registry.workers() for state, count in w.breaker.transitions.items()]

    counts: dict[tuple[str, str], int] = {}

    def workers() -> Rows:
        """A model seen once keeps all its states, at 0 where no worker has them: that there is none must be visible."""
        counts.update(dict.fromkeys(counts, 0))
        for worker in registry.workers():
            if worker.model:
                for state in _STATES.values():
                    counts.setdefault((worker.model, state), 0)
                counts[worker.model, _STATES[worker.state]] += 1
        return counts.items()

    registry.observe(_Forgetful(metrics))
    metrics.rows("headrace_routing_decisions_total", decisions)
    metrics.rows("headrace_routed_requests_total", lambda: [((worker,), n) for worker, n in registry.leased.items()])
    metrics.rows("headrace_routed_requests_in_flight", lambda: [((w.id,), w.in_flight.requests) for w in registry.workers()])
    metrics.rows("headrace_routing_predicted_cached_tokens_total", lambda: [((), registry.forecast.predicted_tokens)])
    metrics.rows("headrace_routing_found_cached_tokens_total", lambda: [((), registry.forecast.found_tokens)])
    metrics.rows("headrace_workers", workers)
    metrics.rows("headrace_breaker_state", lambda: [((w.id,), _BREAKERS[w.breaker.state]) for w in registry.workers()])
    metrics.rows("headrace_breaker_transitions_total", transitions)
    metrics.gauge("headrace_panic_routing").read(lambda: any(registry.panicking(model) for model in registry.models()))


def publish_caches(metrics: Metrics, registry: Registry, caches: CacheSubscriber) -> None:
    """What is known of the workers' caches, and how."""

    def blocks() -> Rows:
        trees = {group.model: group.index.tree for group in registry.groups()}
        return [((w.id,), trees[w.model].blocks_of(w.id)) for w in registry.workers() if w.model in trees]

    def ages() -> Rows:
        now = time.monotonic()
        return [((w.id,), now - caches.heard_at[w.id]) for w in registry.workers() if w.id in caches.heard_at]

    metrics.rows("headrace_cache_events_total", lambda: [((kind,), count) for kind, count in caches.events.items()])
    metrics.rows("headrace_cache_event_gaps_total", lambda: [((worker,), n) for worker, n in caches.gaps.items()])
    metrics.rows("headrace_cache_snapshots_total", lambda: [((worker,), n) for worker, n in caches.snapshots.items()])
    metrics.rows("headrace_cache_event_age_seconds", ages)
    metrics.rows("headrace_prefix_blocks", blocks)
    metrics.gauge("headrace_prefix_tree_nodes").read(lambda: sum(len(group.index.tree) for group in registry.groups()))


def publish_resilience(metrics: Metrics, budget: RetryBudget, totals: ResumeTotals, admission: Admission) -> None:
    """Retries, resumes and refusals."""

    def limits() -> Rows:
        total = sum(gate["limit"] for gate in admission.snapshot().values())
        return [(("concurrent_requests",), math.inf if total >= UNLIMITED else total)]

    metrics.rows("headrace_retries_total", lambda: [((why,), count) for why, count in budget.retries.items()])
    metrics.counter("headrace_retries_refused_total").read(lambda: budget.exhausted)
    metrics.gauge("headrace_retry_budget_remaining_ratio").read(lambda: budget.remaining_share)
    metrics.rows("headrace_resumes_total", lambda: [(("resumed",), totals.resumes), (("failed",), totals.given_up + totals.suspects)])
    metrics.rows("headrace_admission_rejections_total", lambda: [((limit,), count) for limit, count in admission.shed().items()])
    metrics.rows("headrace_limit", limits)
    metrics.gauge("headrace_requests_waiting").read(lambda: sum(gate["waiting"] for gate in admission.snapshot().values()))


def publish_discovery(metrics: Metrics, memberships: Sequence[Membership]) -> None:
    """Changes that discovery has seen."""
    metrics.rows("headrace_discovery_events_total", lambda: [((k,), n) for m in memberships for k, n in m.changes.items()])
