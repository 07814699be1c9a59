"""Rows of the request-to-token table and what each of them holds."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np

from services.scheduler.cache.node import Node


class Rows:
    """Row r holds `allocated[r]` tokens' worth of slots (whole pages); the first `shared[r]` belong to the prefix cache,
    which `lease[r]` keeps locked, the rest to the row. Lowest rows are taken first."""

    def __init__(self, max_rows: int) -> None:
        self._free = list(range(1, max_rows + 1))
        heapify(self._free)
        self.allocated = np.zeros(max_rows + 1, np.int32)
        self.shared = np.zeros(max_rows + 1, np.int32)
        self.lease: list[Node | None] = [None] * (max_rows + 1)

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self, lease: Node, length: int) -> int:
        row = heappop(self._free)
        self.lease[row] = lease
        self.allocated[row] = self.shared[row] = length
        return row

    def give_back(self, row: int) -> None:
        self.lease[row] = None
        self.allocated[row] = self.shared[row] = 0
        heappush(self._free, row)

    def in_use(self) -> list[int]:
        return [row for row, lease in enumerate(self.lease) if lease is not None]
