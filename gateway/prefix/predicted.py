"""Blocks that are not cached yet but will be in a moment, because a request that computes them has just been sent.

Keeps a burst of equal new prompts together on one worker. A prediction is forgotten after `lifetime_s`: by then the
worker has told of the block itself, or never will.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence


class PredictedBlocks:
    """Predictions per worker, oldest dropped beyond `max_blocks`. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float], *, lifetime_s: float, max_blocks: int = 1 << 18) -> None:
        self._clock = clock
        self._lifetime_s = lifetime_s
        self._max_blocks = max_blocks
        self._until: dict[str, dict[int, float]] = {}
        self._queue: deque[tuple[float, str, Sequence[int]]] = deque()
        self._queued = 0

    def __len__(self) -> int:
        return sum(map(len, self._until.values()))

    def add(self, worker_id: str, hashes: Sequence[int]) -> None:
        """The worker will soon hold these blocks, which follow one another."""
        self._expire()
        if not hashes or self._lifetime_s <= 0:
            return
        until = self._clock() + self._lifetime_s
        self._until.setdefault(worker_id, {}).update(dict.fromkeys(hashes, until))
        self._queue.append((until, worker_id, hashes))
        self._queued += len(hashes)

    def extend(self, hashes: Sequence[int], exact: Mapping[str, int]) -> dict[str, int]:
        """Worker id → leading blocks it holds or will hold, for workers whose prediction goes beyond `exact`."""
        self._expire()
        found = {}
        for worker_id, blocks in self._until.items():
            start = exact.get(worker_id, 0)
            depth = start
            while depth < len(hashes) and hashes[depth] in blocks:
                depth += 1
            if depth > start:
                found[worker_id] = depth
        return found

    def remove_worker(self, worker_id: str) -> None:
        self._until.pop(worker_id, None)

    def _expire(self) -> None:
        now = self._clock()
        while self._queue and (self._queue[0][0] <= now or self._queued > self._max_blocks):
            until, worker_id, hashes = self._queue.popleft()
            self._queued -= len(hashes)
            blocks = self._until.get(worker_id)
            if blocks is None:
                continue
            for block in hashes:
                if blocks.get(block) == until:
                    del blocks[block]
            if not blocks:
                del self._until[worker_id]
