"""The obvious implementation of what `tree` promises: one set of blocks per worker and tier. Used by tests only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class NaiveTree:
    """Same answers as PrefixTree, no cleverness."""

    def __init__(self) -> None:
        self.workers: dict[str, set[tuple[int, int]]] = {}

    def replace(self, worker_id: str, blocks: Iterable[tuple[int, int]]) -> None:
        """The worker now holds exactly these (tier, hash) pairs."""
        self.workers[worker_id] = set(blocks)

    def stored(self, worker_id: str, hashes: Iterable[int], tier: int) -> None:
        self.workers[worker_id] |= {(tier, block) for block in hashes}

    def removed(self, worker_id: str, hashes: Iterable[int], tier: int) -> None:
        self.workers[worker_id] -= {(tier, block) for block in hashes}

    def remove_worker(self, worker_id: str) -> None:
        self.workers.pop(worker_id, None)

    def match(self, hashes: Sequence[int]) -> dict[str, int]:
        found = {}
        for worker_id, pairs in self.workers.items():
            held = {block for _, block in pairs}
            depth = 0
            while depth < len(hashes) and hashes[depth] in held:
                depth += 1
            if depth:
                found[worker_id] = depth
        return found
