"""Requests with the same routing key go to the same worker for as long as it lives."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Sequence

from gateway.routing.interface import Decision, RouteRequest, WorkerView
from gateway.routing.load import least_loaded


class Manual:
    """Remembers key → worker for `idle_s` after the key's last request, at most `max_keys` of them.

    A key moves only if its worker is not there any more. A retry that excludes the worker goes elsewhere once.
    """

    name = "manual"
    uses_prefixes = False

    def __init__(self, clock: Callable[[], float], rng: random.Random, *, idle_s: float = 4 * 3600.0, max_keys: int = 100_000) -> None:
        self._clock = clock
        self._random = rng
        self._idle_s = idle_s
        self._max_keys = max_keys
        self._pins: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pins)

    def choose(self, request: RouteRequest, workers: Sequence[WorkerView]) -> Decision:
        self._expire()
        key = request.routing_key
        if not key:
            return Decision(least_loaded(workers, self._random).id, "no_key")
        pinned = self._pins.get(key, ("", 0.0))[0]
        if any(worker.id == pinned for worker in workers):
            return self._pin(key, pinned, "sticky")
        chosen = least_loaded(workers, self._random).id
        if pinned and pinned in request.excluded:
            return Decision(chosen, "away_once")
        return self._pin(key, chosen, "moved" if pinned else "new_key")

    def forget(self, worker_id: str) -> None:
        for key in [key for key, (worker, _) in self._pins.items() if worker == worker_id]:
            del self._pins[key]

    def _pin(self, key: str, worker_id: str, reason: str) -> Decision:
        self._pins[key] = (worker_id, self._clock())
        self._pins.move_to_end(key)
        while len(self._pins) > self._max_keys:
            self._pins.popitem(last=False)
        return Decision(worker_id, reason)

    def _expire(self) -> None:
        oldest = self._clock() - self._idle_s
        while self._pins and next(iter(self._pins.values()))[1] <= oldest:
            self._pins.popitem(last=False)
