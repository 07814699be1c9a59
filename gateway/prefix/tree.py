"""The union of the workers' prefix trees at block granularity, kept exact by the events they publish.

Block hashes are chained: a block's hash names its whole path from the root. So the tree needs no edges. It is one table
from block hash to the set of workers that hold the block, a set being the bits of an integer, and matching a prompt
walks its hashes until nobody is left. Two workers' prompts share entries exactly where their paths coincide.

A worker's contents occupy a *slot*, one bit. A snapshot is built in a slot of its own while the old one still answers,
and the switch is one assignment; so is removal. Retired bits are swept out of the table a little at a time and only then
used again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

_FIRST_STRIDE = 32


class PrefixTree:
    """Which worker holds which blocks, per tier. A block counts as held if any tier has it.

    Memory: one table entry per distinct block, about 95 bytes with CPython's dict and boxed hashes, whatever the
    number of workers (see benchmarks/prefix_tree.py).
    """

    def __init__(self) -> None:
        self._tiers: dict[int, dict[int, int]] = {}
        self._slots: dict[str, int] = {}
        self._building: dict[str, int] = {}
        self._owner: dict[int, str] = {}
        self._counts: dict[int, int] = {}
        self._free: list[int] = []
        self._next_slot = 0
        self._live = 0
        self._retired = 0
        self._sweeping: Iterator[tuple[dict[int, int], int]] | None = None
        self._swept = 0
        self._interned: dict[int, int] = {}

    def __len__(self) -> int:
        """Distinct (tier, block) entries, those of retired slots that are not swept yet included."""
        return sum(map(len, self._tiers.values()))

    def follows(self, worker_id: str) -> bool:
        """Whether the worker's contents are known exactly."""
        return worker_id in self._slots

    def blocks_of(self, worker_id: str) -> int:
        """Number of (tier, block) pairs the worker holds."""
        return self._counts[self._slots[worker_id]] if worker_id in self._slots else 0

    # ------------------------------------------------------------------ events

    def begin_snapshot(self, worker_id: str) -> None:
        """What follows with `snapshot` replaces the worker's contents once `end_snapshot` is called."""
        self.abandon_snapshot(worker_id)
        self._building[worker_id] = self._take_slot()

    def snapshot(self, worker_id: str, hashes: Iterable[int], tier: int) -> None:
        self._add(self._building[worker_id], hashes, tier)

    def end_snapshot(self, worker_id: str) -> None:
        slot = self._building.pop(worker_id)
        self.remove_worker(worker_id)
        self._slots[worker_id] = slot
        self._owner[slot] = worker_id
        self._live |= 1 << slot

    def abandon_snapshot(self, worker_id: str) -> None:
        """Throw away an unfinished snapshot, if there is one."""
        if worker_id in self._building:
            self._retire(self._building.pop(worker_id))

    def stored(self, worker_id: str, hashes: Iterable[int], tier: int) -> None:
        self._add(self._slots[worker_id], hashes, tier)

    def removed(self, worker_id: str, hashes: Iterable[int], tier: int) -> None:
        slot = self._slots[worker_id]
        bit = 1 << slot
        table = self._tiers.get(tier, {})
        gone = 0
        for block in hashes:
            mask = table.get(block, 0)
            if mask & bit:
                gone += 1
                self._put(table, block, mask ^ bit)
        self._counts[slot] -= gone

    def cleared(self, worker_id: str) -> None:
        """The worker holds nothing any more, and says so."""
        self.begin_snapshot(worker_id)
        self.end_snapshot(worker_id)

    def remove_worker(self, worker_id: str) -> None:
        """The worker is gone; takes constant time."""
        self.abandon_snapshot(worker_id)
        slot = self._slots.pop(worker_id, None)
        if slot is not None:
            del self._owner[slot]
            self._live &= ~(1 << slot)
            self._retire(slot)

    def sweep(self, entries: int) -> bool:
        """Look at up to `entries` table entries for retired bits. True while there is more to do."""
        if self._sweeping is None:
            if not self._retired:
                return False
            self._swept = self._retired
            self._sweeping = self._all_keys()
        done = True
        for table, block in islice(self._sweeping, entries):
            done = False
            mask = table.get(block, 0)
            if mask & self._swept:
                self._put(table, block, mask & ~self._swept)
        if done:
            self._sweeping = None
            self._retired &= ~self._swept
            self._free += [slot for slot in range(self._swept.bit_length()) if self._swept >> slot & 1]
        return not done or bool(self._retired)

    # ------------------------------------------------------------------ matching

    def match(self, hashes: Sequence[int]) -> dict[str, int]:
        """Worker id → number of leading blocks it holds, for workers that hold at least the first."""
        depths: dict[str, int] = {}
        alive, start, stride = self._live, 0, _FIRST_STRIDE
        while alive and start < len(hashes):
            for depth, held in enumerate(self._held(hashes[start : start + stride]), start):
                lost = alive & ~held
                if lost:
                    if depth:
                        self._note(depths, lost, depth)
                    alive &= held
                    if not alive:
                        return depths
            start += stride
            stride *= 4
        if alive and hashes:
            self._note(depths, alive, len(hashes))
        return depths

    def holds(self, worker_id: str, block: int) -> bool:
        """Whether the worker holds the block in any tier."""
        slot = self._slots.get(worker_id)
        return slot is not None and any(table.get(block, 0) >> slot & 1 for table in self._tiers.values())

    def _held(self, hashes: Sequence[int]) -> Iterable[int]:
        tables = [table for table in self._tiers.values() if table]
        if len(tables) == 1:
            get = tables[0].get
            return [get(block, 0) for block in hashes]
        held = []
        for block in hashes:
            mask = 0
            for table in tables:
                mask |= table.get(block, 0)
            held.append(mask)
        return held

    def _note(self, depths: dict[str, int], slots: int, depth: int) -> None:
        while slots:
            low = slots & -slots
            depths[self._owner[low.bit_length() - 1]] = depth
            slots ^= low

    # ------------------------------------------------------------------ slots

    def _add(self, slot: int, hashes: Iterable[int], tier: int) -> None:
        bit = 1 << slot
        table = self._tiers.setdefault(tier, {})
        intern, new = self._interned, 0
        if len(intern) > 1 << 16:
            intern.clear()
        for block in hashes:
            mask = table.get(block, 0)
            if not mask & bit:
                new += 1
                mask |= bit
                table[block] = intern.setdefault(mask, mask)
        self._counts[slot] += new

    def _put(self, table: dict[int, int], block: int, mask: int) -> None:
        if mask:
            table[block] = self._interned.setdefault(mask, mask)
        else:
            del table[block]

    def _take_slot(self) -> int:
        if self._free:
            slot = self._free.pop()
        else:
            slot, self._next_slot = self._next_slot, self._next_slot + 1
        self._counts[slot] = 0
        return slot

    def _retire(self, slot: int) -> None:
        if self._counts.pop(slot):
            self._retired |= 1 << slot
        else:
            self._free.append(slot)

    def _all_keys(self) -> Iterator[tuple[dict[int, int], int]]:
        for table in list(self._tiers.values()):
            for block in list(table):
                yield table, block
