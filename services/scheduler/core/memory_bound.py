"""A bound on a step's size that falls when device memory runs out and comes back a little at a time."""

from __future__ import annotations

_FIRST_PATIENCE = 64  # steps that must fit before the bound grows
_MOST_PATIENCE = 1 << 16
_PORTION = 16  # of what was configured: how much it grows at once


class MemoryBound:
    """At `most` until `lower` is called; `fitted` lets it grow again, never above `most`.

    Growth that runs out of memory goes back to what was known to fit and doubles the number of steps before the next
    try, so that a device that stays full costs ever fewer failures. Once `most` has held as long, all is as at the start.
    """

    def __init__(self, most: int, least: int) -> None:
        """`least` is what the bound never falls below; both in the unit of what is bounded."""
        self.most = most
        self.value = most
        self._least = min(least, most)
        self._patience = _FIRST_PATIENCE
        self._fitted = 0
        self._before_growth: int | None = None

    @property
    def is_lowered(self) -> bool:
        return self.value < self.most

    def lower(self, tried: int) -> bool:
        """Memory ran out in a step of size `tried`: allow less than that; false if there is no less."""
        if tried <= self._least:
            return False
        safe, self._before_growth = self._before_growth, None
        if safe is not None:
            self._patience = min(2 * self._patience, _MOST_PATIENCE)
        target = safe if safe is not None and safe < tried else max(tried // 2, self._least)
        self.value = min(self.value, target)
        self._fitted = 0
        return True

    def fitted(self) -> bool:
        """A step went well; true if the bound grew."""
        if self._before_growth is None and not self.is_lowered:
            return False
        self._fitted += 1
        if self._fitted < self._patience:
            return False
        self._fitted = 0
        if not self.is_lowered:
            self._before_growth, self._patience = None, _FIRST_PATIENCE
            return False
        self._before_growth = self.value
        self.value = min(self.value + max(self.most // _PORTION, 1), self.most)
        return True
