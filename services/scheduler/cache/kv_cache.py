"""Everything the scheduler core does with cache memory; slots and groups do not show above this file."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from time import perf_counter_ns

import numpy as np

from services.scheduler.cache.groups import CacheGroup
from services.scheduler.cache.interface import PrefixCache, PrefixMatch, Slots
from services.scheduler.cache.node import Node
from services.scheduler.cache.req_to_token import Rows
from services.scheduler.core.plan import IntArray, TableWrite


class KvCache:
    """Pool, row table and prefix cache as one. A token's slot is free, owned by a row, or owned by the prefix cache.

    Running sequences and cached prefixes share the pool; what the prefix cache holds unlocked is given up on demand.
    """

    def __init__(
        self, groups: Sequence[CacheGroup], prefixes: PrefixCache, max_rows: int, timer: Callable[[], int] = perf_counter_ns
    ) -> None:
        self.groups = tuple(groups)
        self.prefixes = prefixes
        self.rows = Rows(max_rows)
        self.page_size = self.groups[0].allocator.page_size
        self.capacity = min(group.allocator.capacity for group in self.groups)
        self._timer = timer
        self._nothing: Slots = (np.empty(0, np.int32),) * len(self.groups)
        self.evicted_tokens = 0
        self.eviction_ns = 0

    # ------------------------------------------------------------------ accounts, in tokens

    @property
    def free_tokens(self) -> int:
        return min(group.allocator.free_tokens for group in self.groups)

    @property
    def available_tokens(self) -> int:
        """What could be allocated now: free and evictable."""
        return self.free_tokens + self.prefixes.evictable_tokens

    @property
    def used_tokens(self) -> int:
        """What running sequences hold, shared prefixes counted once."""
        return self.capacity - self.available_tokens

    def whole_pages(self, tokens: int) -> int:
        return -(-tokens // self.page_size) * self.page_size

    # ------------------------------------------------------------------ life of a row

    def acquire(self, namespace: Hashable, ids: IntArray) -> PrefixMatch:
        """Match `ids` and lock what was found; `abandon` or `start` follows."""
        match = self.prefixes.match(namespace, ids)
        self.prefixes.lock(match.node)
        return match

    def abandon(self, match: PrefixMatch) -> None:
        self.prefixes.unlock(match.node)

    def start(self, match: PrefixMatch) -> tuple[int, TableWrite | None]:
        """Take a row for a sequence that begins with the acquired prefix."""
        self.prefixes.count_hit(match.node)
        row = self.rows.take(match.node, match.length)
        if not match.length:
            return row, None
        slots = self.prefixes.slots(match.node, 0)
        for group, own in zip(self.groups, slots, strict=True):
            group.table[row, : match.length] = own
        return row, TableWrite(row, 0, slots[0])

    def extend(self, row: int, start: int, count: int) -> IntArray | None:
        """Slots of the row's tokens `start`..`start + count` as a view, or None if the pool cannot hold them."""
        held = int(self.rows.allocated[row])
        pages = (self.whole_pages(start + count) - held) // self.page_size
        if pages > 0:
            evicted = self._evict_for(pages)
            if evicted is None:
                return None
            for group, slots in zip(self.groups, evicted, strict=True):
                group.append(row, held, group.take(pages, slots))
            self.rows.allocated[row] = held + pages * self.page_size
        return self.groups[0].table[row, start : start + count]

    def pages_up_to(self, rows: IntArray, ends: IntArray) -> int:
        """Pages that the rows lack for their tokens before `ends`."""
        lacking = ends - self.rows.allocated[rows]
        return int((-(-lacking // self.page_size)).clip(0).sum())

    def fits(self, pages: int) -> bool:
        return pages * self.page_size <= self.available_tokens

    def extend_each(self, rows: IntArray, lengths: IntArray) -> IntArray | None:
        """Slot of token `lengths[i]` of `rows[i]`, for all of them, or None if the pool cannot hold them."""
        lacking = self.rows.allocated[rows] <= lengths
        pages = int(np.count_nonzero(lacking))
        if pages:
            evicted = self._evict_for(pages)
            if evicted is None:
                return None
            where, starts = (rows, lengths) if pages == rows.size else (rows[lacking], lengths[lacking])
            for group, slots in zip(self.groups, evicted, strict=True):
                group.append_one(where, starts, group.take(pages, slots))
            self.rows.allocated[where] += self.page_size
        found: IntArray = self.groups[0].table[rows, lengths]
        return found

    def commit(self, row: int, ids: IntArray, priority: int = 0) -> TableWrite | None:
        """Put the computed tokens `ids` of a running row (from position 0) into the prefix cache.

        Where the cache had them already the row's own slots are given back and the row uses the cached ones;
        the engine learns that from the table write.
        """
        end = ids.size // self.page_size * self.page_size
        shared = int(self.rows.shared[row])
        if not self.prefixes.enabled or end <= shared:
            return None
        node, present = self._insert(row, ids[:end], priority, move_lock=True)
        self.rows.lease[row] = node
        self.rows.shared[row] = end
        if present <= shared:
            return None
        slots = tuple(own[: present - shared] for own in self.prefixes.slots(node, shared))
        for group, own in zip(self.groups, slots, strict=True):
            group.table[row, shared:present] = own
        return TableWrite(row, shared, slots[0])

    def release(self, row: int, computed: IntArray | None, priority: int = 0, session: str = "") -> None:
        """End of a row: `computed` tokens go into the prefix cache, None keeps nothing; all other slots become free.

        What was kept is what `session` refers to from now on, if it has a name.
        """
        lease = self._lease(row)
        first = int(self.rows.shared[row])
        if computed is not None and self.prefixes.enabled:
            end, node = computed.size // self.page_size * self.page_size, lease
            if end > first:
                node, _ = self._insert(row, computed[:end], priority, move_lock=False)
                first = end
            if session:
                self.prefixes.refer(session, node)
        self._free(row, first, int(self.rows.allocated[row]))
        self.prefixes.unlock(lease)
        self.rows.give_back(row)

    def forget(self, namespace: Hashable, ids: IntArray) -> None:
        """Drop what is cached of `ids` and of no other sequence: its values are not to be trusted."""
        self._take_back(self.prefixes.forget(namespace, ids))

    def flush(self) -> int:
        """Forget every prefix that is not in use; returns the number of tokens."""
        slots = self.prefixes.clear()
        self._take_back(slots)
        return slots[0].size

    # ------------------------------------------------------------------ inside

    def _lease(self, row: int) -> Node:
        lease = self.rows.lease[row]
        if lease is None:
            raise ValueError(f"row {row} is not in use")
        return lease

    def _insert(self, row: int, ids: IntArray, priority: int, *, move_lock: bool) -> tuple[Node, int]:
        """Offer the row's tokens to the prefix cache and free the row's slots of those it had."""
        shared = int(self.rows.shared[row])
        own = tuple([group.table[row, shared : ids.size] for group in self.groups])
        node, present = self.prefixes.insert(self._lease(row), ids, own, priority, move_lock=move_lock)
        self._free(row, shared, present)
        return node, present

    def _free(self, row: int, start: int, end: int) -> None:
        if end > start:
            for group in self.groups:
                group.free(group.table[row, start:end])

    def _take_back(self, slots: Slots) -> None:
        for group, own in zip(self.groups, slots, strict=True):
            group.free(own)

    def _evict_for(self, pages: int) -> Slots | None:
        """Slots of what is evicted for an allocation of `pages`, nobody's now. None if all there is would not do.

        All of the allocation is evicted if it can be, though some pages are free: these lie scattered, what a prefix leaves
        is a run. They go to decode steps, page by page.
        """
        evictable = self.prefixes.evictable_tokens
        lacking = pages - min([group.allocator.free_pages for group in self.groups])
        if lacking <= 0:
            return self._nothing
        if lacking * self.page_size > evictable:
            return None
        began = self._timer()
        slots = self.prefixes.evict(min(pages * self.page_size, evictable))
        self.evicted_tokens += slots[0].size
        self.eviction_ns += self._timer() - began
        return slots
