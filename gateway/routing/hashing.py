"""Policies that send equal keys to equal workers without remembering any: rendezvous hashing.

Each worker ranks every key; the key goes to the worker that ranks it highest. When a worker leaves, only its own keys
move, and every gateway process agrees without talking to the others.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

from gateway.routing.interface import Decision, RouteRequest, WorkerView
from gateway.routing.load import least_loaded


def ranked(key: str, workers: Sequence[WorkerView]) -> list[WorkerView]:
    """The workers in the order in which they come into question for the key."""
    return sorted(workers, key=lambda worker: xxh3_64_intdigest(f"{worker.id}\0{key}".encode()), reverse=True)


class ConsistentHashing:
    """By the request's routing key, or its tenant's where it has none; by load where it has neither."""

    name = "consistent_hashing"
    uses_prefixes = False

    def __init__(self, rng: random.Random) -> None:
        self._random = rng

    def choose(self, request: RouteRequest, workers: Sequence[WorkerView]) -> Decision:
        key = request.routing_key or request.tenant
        if not key:
            return Decision(least_loaded(workers, self._random).id, "no_key")
        return Decision(ranked(key, workers)[0].id, "hash")

    def forget(self, worker_id: str) -> None:
        return


class PrefixHash:
    """By the first `prefix_tokens` of the prompt; a worker above `load_factor` times the mean load is passed over."""

    name = "prefix_hash"
    uses_prefixes = True

    def __init__(self, rng: random.Random, *, prefix_blocks: int = 16, load_factor: float = 1.25) -> None:
        self._random = rng
        self._prefix_blocks = prefix_blocks
        self._load_factor = load_factor

    def choose(self, request: RouteRequest, workers: Sequence[WorkerView]) -> Decision:
        if not request.block_hashes:
            return Decision(least_loaded(workers, self._random).id, "short_prompt")
        key = str(request.block_hashes[min(len(request.block_hashes), self._prefix_blocks) - 1])
        bound = self._load_factor * (sum(worker.load for worker in workers) + 1) / len(workers)
        order = ranked(key, workers)
        chosen = next((worker for worker in order if worker.load < bound), None) or least_loaded(workers, self._random)
        return Decision(chosen.id, "hash" if chosen is order[0] else "passed_over")

    def forget(self, worker_id: str) -> None:
        return
