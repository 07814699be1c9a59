"""Policies that look at no prompt: each in turn, by chance, or by load."""

from __future__ import annotations

import random
from collections.abc import Sequence

from gateway.routing.interface import Decision, RouteRequest, WorkerView
from gateway.routing.load import least_loaded


class _Simple:
    uses_prefixes = False

    def forget(self, worker_id: str) -> None:
        return


class RoundRobin(_Simple):
    """Each worker in turn."""

    name = "round_robin"

    def __init__(self) -> None:
        self._turn = 0

    def choose(self, request: RouteRequest, workers: Sequence[WorkerView]) -> Decision:
        worker = workers[self._turn % len(workers)]
        self._turn += 1
        return Decision(worker.id, "turn")


class Random(_Simple):
    """Any worker."""

    name = "random"

    def __init__(self, rng: random.Random) -> None:
        self._random = rng

    def choose(self, request: RouteRequest, workers: Sequence[WorkerView]) -> Decision:
        return Decision(self._random.choice(workers).id, "chance")


class PowerOfTwo(_Simple):
    """The less loaded of two that chance picks."""

    name = "power_of_two"

    def __init__(self, rng: random.Random) -> None:
        self._random = rng

    def choose(self, request: RouteRequest, workers: Sequence[WorkerView]) -> Decision:
        pair = self._random.sample(workers, min(2, len(workers)))
        return Decision(least_loaded(pair, self._random).id, "less_of_two")


class LeastLoad(_Simple):
    """The worker with the fewest requests."""

    name = "least_load"

    def __init__(self, rng: random.Random) -> None:
        self._random = rng

    def choose(self, request: RouteRequest, workers: Sequence[WorkerView]) -> Decision:
        return Decision(least_loaded(workers, self._random).id, "least_load")
