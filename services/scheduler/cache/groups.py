"""State a model keeps per token, by kind: each kind has its own pool and its own row table."""

from __future__ import annotations

import numpy as np

from services.scheduler.cache.allocator import PageAllocator
from services.scheduler.core.plan import IntArray


class CacheGroup:
    """Slots of one kind of state. `table[row, position]` is the slot of a running sequence's token; row 0 is padding."""

    def __init__(self, name: str, num_slots: int, max_rows: int, context_length: int, page_size: int) -> None:
        self.name = name
        self.allocator = PageAllocator(num_slots, page_size)
        self.table = np.zeros((max_rows + 1, context_length + page_size), np.int32)

    def append(self, row: int, start: int, pages: IntArray) -> None:
        """Give `pages` to positions `start`, `start + 1`, … of a row; `start` is a multiple of the page size."""
        size = self.allocator.page_size
        slots = pages if size == 1 else (pages[:, None] * size + np.arange(size, dtype=np.int32)).ravel()
        self.table[row, start : start + slots.size] = slots

    def append_one(self, rows: IntArray, starts: IntArray, pages: IntArray) -> None:
        """Give one page to each of several rows."""
        size = self.allocator.page_size
        if size == 1:
            self.table[rows, starts] = pages
        else:
            offsets = np.arange(size, dtype=np.int32)
            self.table[rows[:, None], starts[:, None] + offsets] = pages[:, None] * size + offsets

    def free(self, slots: IntArray) -> None:
        """Take back the pages of `slots`, which begin at a page boundary and are in page order."""
        self.allocator.free(self._pages(slots))

    def take(self, count: int, evicted: IntArray) -> IntArray:
        """`count` pages, those of the `evicted` slots first; what is left of these becomes free. Together they must suffice."""
        handed = self._pages(evicted)
        if handed.size >= count:
            self.allocator.free(handed[count:])
            return handed[:count]
        found = self.allocator.allocate(count - handed.size)
        assert found is not None, "room was made before"
        return np.concatenate((handed, found)) if handed.size else found

    def _pages(self, slots: IntArray) -> IntArray:
        size = self.allocator.page_size
        return slots if size == 1 else slots[::size] // size
