"""A stand-in for keys and values: each slot holds a digest of the sequence up to its token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from services.scheduler.core.plan import IntArray, StepPlan

_FACTOR = 6364136223846793005
_INVERSE = pow(_FACTOR, -1, 1 << 64)
_MASK = (1 << 64) - 1

Digests = npt.NDArray[np.uint64]


class SlotMemory:
    """digest[p] = digest[p - 1] * factor + token + 1, modulo 2**64, kept per slot and found through the row table."""

    def __init__(self, num_slots: int, max_rows: int, context_length: int) -> None:
        self._table = np.zeros((max_rows + 1, context_length), np.int32)
        self._digests: Digests = np.zeros(num_slots + 1, np.uint64)
        self._powers = _powers(_FACTOR, context_length + 1)
        self._inverse_powers = _powers(_INVERSE, context_length + 1)

    def apply(self, plan: StepPlan) -> None:
        """Bring the row table up to date with a plan."""
        for write in plan.table_writes:
            self._table[write.row, write.start : write.start + write.slots.size] = write.slots
        starts = np.cumsum(plan.extend_lens) - plan.extend_lens
        offsets = np.arange(plan.out_slots.size) - np.repeat(starts, plan.extend_lens)
        self._table[np.repeat(plan.rows, plan.extend_lens), np.repeat(plan.prefix_lens, plan.extend_lens) + offsets] = plan.out_slots

    def write(self, plan: StepPlan, ids: IntArray) -> None:
        """Compute the digests of the plan's new tokens."""
        prefixes = plan.prefix_lens
        before = self._digests[self._table[plan.rows, np.maximum(prefixes - 1, 0)]]
        before[prefixes == 0] = 0
        if ids.size == plan.rows.size:
            self._digests[plan.out_slots] = before * self._powers[1] + ids.astype(np.uint64) + np.uint64(1)
            return
        start = 0
        for index, count in enumerate(plan.extend_lens.tolist()):
            self._digests[plan.out_slots[start : start + count]] = self._chain(before[index], ids[start : start + count])
            start += count

    def check(self, row: int, tokens: Sequence[int]) -> None:
        """Raise AssertionError unless the row's slots hold exactly these tokens."""
        expected = self._chain(np.uint64(0), np.array(tokens, np.int64))
        found = self._digests[self._table[row, : len(tokens)]]
        assert np.array_equal(expected, found), f"row {row}: slots were overwritten or mixed up"

    def digests(self, slots: IntArray) -> Digests:
        """What the slots hold."""
        return self._digests[slots]

    def corrupt(self, slot: int) -> None:
        """Change what a slot holds, as a stray write would."""
        self._digests[slot] ^= np.uint64(1)

    def draw(self, row: int, position: int, salt: int) -> int:
        """A number that depends on the whole sequence up to `position`."""
        value = (int(self._digests[self._table[row, position]]) ^ (salt * 0x9E3779B97F4A7C15 & _MASK)) * 0xD1342543DE82EF95 & _MASK
        return value >> 17

    def _chain(self, before: np.uint64, tokens: npt.NDArray[np.integer]) -> Digests:
        size = len(tokens)
        terms = (tokens.astype(np.uint64) + np.uint64(1)) * self._inverse_powers[1 : size + 1]
        chained: Digests = (np.cumsum(terms, dtype=np.uint64) + before) * self._powers[1 : size + 1]
        return chained


def _powers(base: int, count: int) -> Digests:
    values = np.full(count, np.uint64(base), np.uint64)
    values[0] = 1
    return np.cumprod(values, dtype=np.uint64)
