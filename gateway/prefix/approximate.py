"""A guess at the caches of workers that publish nothing: what was sent where, least recently used prefixes dropped.

The limit holds for the tree as a whole. Blocks of a path are refreshed deepest first, so a prefix is always younger than
what follows it and eviction takes the ends of paths before their beginnings.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

_MOST_SETS = 1 << 16


class ApproximateTree:
    """Block hash → workers it was sent to, at most `max_blocks` blocks."""

    def __init__(self, *, max_blocks: int) -> None:
        self._max_blocks = max_blocks
        self._blocks: OrderedDict[int, frozenset[str]] = OrderedDict()
        self._interned: dict[frozenset[str], frozenset[str]] = {}
        self._gone: set[str] = set()

    def __len__(self) -> int:
        return len(self._blocks)

    def insert(self, worker_id: str, hashes: Sequence[int]) -> None:
        """The prompt with these blocks was sent to the worker."""
        if worker_id in self._gone:
            self._purge()
        if len(self._interned) > _MOST_SETS:
            self._interned.clear()
        blocks = self._blocks
        for block in reversed(hashes):
            workers = blocks.get(block)
            if workers is None or worker_id not in workers:
                workers = (workers or frozenset()) | {worker_id}
                blocks[block] = self._interned.setdefault(workers, workers)
            blocks.move_to_end(block)
        while len(blocks) > self._max_blocks:
            blocks.popitem(last=False)

    def match(self, hashes: Sequence[int]) -> dict[str, int]:
        """Worker id → leading blocks that were sent there before, for workers with at least one."""
        depths: dict[str, int] = {}
        alive: frozenset[str] | None = None
        depth = 0
        for depth, block in enumerate(hashes):
            held = self._blocks.get(block, frozenset())
            if alive is None:
                alive = held
            elif held is not alive:
                depths.update(dict.fromkeys(alive - held, depth))
                alive &= held
            if not alive:
                break
        else:
            depths.update(dict.fromkeys(alive or (), len(hashes)))
        for gone in self._gone & depths.keys():
            del depths[gone]
        return depths

    def remove_worker(self, worker_id: str) -> None:
        """Forget the worker; its entries go when they age, or at the latest when it comes back."""
        if self._blocks:
            self._gone.add(worker_id)

    def _purge(self) -> None:
        for block, workers in list(self._blocks.items()):
            if workers & self._gone:
                left = workers - self._gone
                if left:
                    self._blocks[block] = self._interned.setdefault(left, left)
                else:
                    del self._blocks[block]
        self._gone.clear()
        self._interned = {workers: workers for workers in set(self._blocks.values())}
