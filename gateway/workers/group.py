"""All that belongs to one model: its policy and what is known of its workers' caches."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from gateway.prefix.index import NO_MATCH, Match, PrefixIndex
from gateway.routing.interface import Decision, Policy, RouteRequest, WorkerView
from gateway.workers.request import LeaseRequest
from gateway.workers.worker import Worker, WorkerInfo

_BELIEVED = 2.0


@dataclass(frozen=True, slots=True)
class Choice:
    """A worker, why it was chosen, and how many prompt tokens it will have to compute."""

    worker: Worker
    decision: Decision
    uncached_tokens: int


class ModelGroup:
    """Routes the requests of one model."""

    def __init__(self, model: str, policy: Policy, index: PrefixIndex) -> None:
        self.model = model
        self.policy = policy
        self.index = index
        self.decisions: Counter[str] = Counter()

    def choose(self, request: LeaseRequest, workers: Sequence[Worker]) -> Choice:
        """One of `workers`, which are all ready and never none."""
        by_id = {worker.id: worker for worker in workers}
        matches = self._matches(request, workers)
        views = view_all(workers, matches)
        route = RouteRequest(
            model=self.model,
            prompt_tokens=len(request.prompt.token_ids),
            block_hashes=self._hashes(request, _info(workers[0])) if self.policy.uses_prefixes else (),
            max_new_tokens=request.max_new_tokens,
            routing_key=request.routing_key,
            tenant=request.tenant,
            priority=request.priority,
            excluded=request.excluded,
        )
        decision = self.policy.choose(route, views)
        self.decisions[decision.reason] += 1
        worker = by_id[decision.worker_id]
        return self._chosen(request, worker, decision, matches.get(worker.id, NO_MATCH))

    def pinned(self, request: LeaseRequest, worker: Worker) -> Choice:
        """The worker the client named."""
        match = self._matches(request, [worker]).get(worker.id, NO_MATCH)
        block = _info(worker).block_size
        decision = Decision(worker.id, "pinned", match.blocks * block, match.predicted * block)
        self.decisions[decision.reason] += 1
        return self._chosen(request, worker, decision, match)

    def _chosen(self, request: LeaseRequest, worker: Worker, decision: Decision, match: Match) -> Choice:
        info = _info(worker)
        if self.policy.uses_prefixes:
            self.index.routed(worker.id, self._hashes(request, info), match.predicted)
        uncached = max(1, len(request.prompt.token_ids) - match.predicted * info.block_size)
        return Choice(worker, decision, uncached)

    def _matches(self, request: LeaseRequest, workers: Sequence[Worker]) -> dict[str, Match]:
        if not self.policy.uses_prefixes:
            return {}
        found: dict[str, Match] = {}
        for key in {(_info(w).identity.model_digest, _info(w).block_size) for w in workers}:
            matches = self.index.match(request.prompt.blocks(*key))
            found.update({w.id: matches[w.id] for w in workers if w.id in matches})
        return found

    def _hashes(self, request: LeaseRequest, info: WorkerInfo) -> list[int]:
        return request.prompt.blocks(info.identity.model_digest, info.block_size)


def view_all(workers: Sequence[Worker], matches: dict[str, Match]) -> list[WorkerView]:
    """The workers as a policy sees them.

    One that has not measured its speed is taken to be as fast as the others, and one that claims to be slower or faster is
    believed half way, on a scale of factors, and only so far: speed depends on what a worker was given, and a wrong
    measure, as of the first prompt after a start, could otherwise never be corrected, because nothing would be sent there.
    """
    rate = _typical(w.load.prefill_tokens_per_s for w in workers)
    step = _typical(w.load.decode_step_s for w in workers)
    return [_view(worker, matches.get(worker.id, NO_MATCH), rate, step) for worker in workers]


def _view(worker: Worker, match: Match, rate: float, step: float) -> WorkerView:
    block = _info(worker).block_size
    return WorkerView(
        id=worker.id,
        load=worker.in_flight.load,
        queued_prefill_tokens=worker.in_flight.queued_prefill_tokens,
        matched_tokens=match.blocks * block,
        predicted_tokens=match.predicted * block,
        prefill_tokens_per_s=_believed(worker.load.prefill_tokens_per_s, rate),
        decode_step_s=_believed(worker.load.decode_step_s, step),
        chunk_tokens=worker.load.chunk_tokens,
        max_running=worker.load.max_running,
        cache_tokens=worker.load.kv_total_tokens,
        free_tokens=max(0, worker.load.kv_free_tokens - worker.in_flight.queued_prefill_tokens),
    )


def _believed(measured: float, typical: float) -> float:
    return typical * min(max(math.sqrt(measured / typical), 1 / _BELIEVED), _BELIEVED) if measured > 0 else typical


def _typical(values: Iterable[float]) -> float:
    measured = [value for value in values if value > 0]
    return median(measured) if measured else 0.0


def _info(worker: Worker) -> WorkerInfo:
    if worker.info is None:
        raise ValueError(f"{worker} is not ready: it has not told what it serves")
    return worker.info
