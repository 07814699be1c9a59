"""The free list of cache slots, by page."""

from __future__ import annotations

import numpy as np

from services.scheduler.core.plan import IntArray

_LEAST_WINDOW = 1024  # pages looked at together
_RUN_WINDOW = 16384  # pages searched for one run
_WORTH_A_RUN = 16  # fewer pages than this may lie anywhere


class PageAllocator:
    """Hands out pages of `page_size` slots; page p covers slots [p * page_size, (p + 1) * page_size).

    Page 0 is never handed out: slot 0 takes the writes of padding. The free pages are a bitmap that is searched
    onwards from where the last search ended, so that a long allocation comes out as one ascending run where there is one.
    """

    def __init__(self, num_slots: int, page_size: int = 1) -> None:
        """Slots 1..num_slots are usable; a last page that would not be whole is left out."""
        self.page_size = page_size
        self.num_pages = (num_slots + 1) // page_size - 1
        if self.num_pages < 1:
            raise ValueError(f"a pool of {num_slots} slots has no whole page of {page_size}")
        self._free = np.ones(self.num_pages + 1, np.bool_)
        self._free[0] = False
        self._last_index = np.zeros(self.num_pages + 1, np.int32)  # scratch: finds a page named twice without sorting
        self._cursor = 1
        self.free_pages = self.num_pages

    @property
    def capacity(self) -> int:
        """Tokens the pool holds at most."""
        return self.num_pages * self.page_size

    @property
    def free_tokens(self) -> int:
        return self.free_pages * self.page_size

    def allocate(self, count: int) -> IntArray | None:
        """`count` pages, ascending if they form one run, or None if fewer are free."""
        if count > self.free_pages:
            return None
        start, end = self._cursor, self._cursor + count
        if np.count_nonzero(self._free[start:end]) == count:
            pages = np.arange(start, end, dtype=np.int32)
            self._free[start:end] = False
            self._cursor = end
        else:
            pages = self._search(count)
            self._free[pages] = False
            self._cursor = int(pages[-1]) + 1
        self.free_pages -= count
        return pages

    def free(self, pages: IntArray) -> None:
        """Take pages back. Raises ValueError if one is free already or was never handed out."""
        size = pages.size
        if not size:
            return
        ascending = size == 1 or np.count_nonzero(pages[1:] > pages[:-1]) == size - 1
        least, most = (pages[0], pages[-1]) if ascending else (pages.min(), pages.max())
        if least < 1 or most > self.num_pages or np.count_nonzero(self._free[pages]):
            raise ValueError("a page was given back that was not in use")
        if not ascending:
            order = np.arange(size, dtype=np.int32)
            self._last_index[pages] = order
            if not np.array_equal(self._last_index[pages], order):
                raise ValueError("a page was given back twice at once")
        self._free[pages] = True
        self.free_pages += size

    def free_page_ids(self) -> IntArray:
        """All free pages, ascending; for integrity checks."""
        return np.flatnonzero(self._free).astype(np.int32)

    def _search(self, count: int) -> IntArray:
        if count >= _WORTH_A_RUN:
            for start in (self._cursor, 1):
                run = self._run(start, count)
                if run is not None:
                    return run
        return self._pieces(count)

    def _run(self, start: int, count: int) -> IntArray | None:
        """The first `count` consecutive free pages in a window from `start` on."""
        found = np.flatnonzero(self._free[start : start + max(_RUN_WINDOW, 2 * count)]).astype(np.int32)
        if found.size < count:
            return None
        runs = np.flatnonzero(found[count - 1 :] - found[: found.size - count + 1] == count - 1)
        return found[runs[0] : runs[0] + count] + np.int32(start) if runs.size else None

    def _pieces(self, count: int) -> IntArray:
        """The next `count` free pages from the cursor on, wherever they lie."""
        expected = 2 * count * self.num_pages // max(self.free_pages, 1)
        window = max(_LEAST_WINDOW, expected)
        parts: list[IntArray] = []
        start, end = self._cursor, self.num_pages + 1
        while count:
            if start >= end:
                start, end = 1, self._cursor
            stop = min(start + window, end)
            found = np.flatnonzero(self._free[start:stop])[:count] + start
            parts.append(found.astype(np.int32))
            count -= found.size
            start, window = stop, 2 * window
        return np.concatenate(parts) if parts else np.empty(0, np.int32)
