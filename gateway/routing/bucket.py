"""Short prompts to some workers, long ones to others, so that short ones never wait behind long prefills."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

from gateway.routing.interface import Decision, RouteRequest, WorkerView
from gateway.routing.load import BalanceGuard, least_loaded


class Bucket:
    """One range of prompt lengths per worker, drawn so that each had an equal share of the recent prompt tokens.

    The ranges are drawn anew every `redraw` requests from the last `window` prompts.
    """

    name = "bucket"
    uses_prefixes = False

    def __init__(self, guard: BalanceGuard, rng: random.Random, *, window: int = 1024, redraw: int = 64) -> None:
        self._guard = guard
        self._random = rng
        self._redraw = redraw
        self._seen: deque[int] = deque(maxlen=window)
        self._since = 0
        self._bounds: list[int] = []

    def choose(self, request: RouteRequest, workers: Sequence[WorkerView]) -> Decision:
        self._seen.append(request.prompt_tokens)
        self._since += 1
        if self._since >= self._redraw or len(self._bounds) != len(workers) - 1:
            self._since = 0
            self._bounds = boundaries(self._seen, len(workers))
        if self._guard.is_imbalanced(workers):
            return Decision(least_loaded(workers, self._random).id, "balance")
        return Decision(workers[bisect_left(self._bounds, request.prompt_tokens)].id, "length")

    def forget(self, worker_id: str) -> None:
        self._bounds = []


def boundaries(lengths: Sequence[int] | deque[int], buckets: int) -> list[int]:
    """Longest prompt of each bucket but the last, buckets having about equal token sums. Never decreasing."""
    ordered = sorted(lengths)
    share = sum(ordered) / buckets
    bounds: list[int] = []
    passed = 0
    for length in ordered:
        passed += length
        while len(bounds) < buckets - 1 and passed >= share * (len(bounds) + 1):
            bounds.append(length)
    return bounds + [ordered[-1]] * (buckets - 1 - len(bounds))
