"""Points in time at which something may be over."""

from __future__ import annotations

from collections.abc import Container, Iterator
from enum import IntEnum
from heapq import heapify, heappop, heappush

_LEAST_PRUNED = 1024


class Timer(IntEnum):
    """What a timer bounds."""

    DEADLINE = 0
    WAITING = 1
    RUNNING = 2


class Timers:
    """A heap of (time, kind, handle). Entries are not removed when they no longer apply; the reader checks that."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, Timer, int]] = []
        self._prune_at = _LEAST_PRUNED

    def add(self, when_ns: int, kind: Timer, handle: int) -> None:
        heappush(self._heap, (when_ns, kind, handle))

    @property
    def next_ns(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def prune(self, live: Container[int]) -> None:
        """Drop the entries of handles that are gone, once they are most of the heap."""
        if len(self._heap) > self._prune_at:
            self._heap = [entry for entry in self._heap if entry[2] in live]
            heapify(self._heap)
            self._prune_at = max(_LEAST_PRUNED, 2 * len(self._heap))

    def due(self, now: int) -> Iterator[tuple[int, Timer, int]]:
        """Take out every entry whose time has come."""
        while self._heap and self._heap[0][0] <= now:
            yield heappop(self._heap)
