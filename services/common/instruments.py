"""Counters, gauges and histograms cheap enough for the token path: plain attributes, no lock, no call into a library.

Any thread may write: CPython switches threads at calls and backward jumps only, and no update has one between its read
and its write.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence


class Counter:
    """A total that only grows."""

    __slots__ = ("_read", "_value")

    def __init__(self) -> None:
        self._value = 0.0
        self._read: Callable[[], float] | None = None

    def inc(self, amount: float = 1) -> None:
        """Add `amount`, which is not negative."""
        if amount < 0:
            raise ValueError("a counter only grows")
        self._value += amount

    def read(self, source: Callable[[], float]) -> None:
        """Take the value from `source` at each scrape: for totals that another part of the program keeps anyway."""
        self._read = source

    @property
    def value(self) -> float:
        """The total now."""
        return float(self._read()) if self._read is not None else self._value


class Gauge:
    """A state. Prefer `read`: a value taken at the scrape cannot be left behind by a forgotten update."""

    __slots__ = ("_read", "_value")

    def __init__(self) -> None:
        self._value = 0.0
        self._read: Callable[[], float] | None = None

    def set(self, value: float) -> None:
        """Replace the value."""
        self._value = float(value)

    def inc(self, amount: float = 1) -> None:
        """Add `amount`."""
        self._value += amount

    def dec(self, amount: float = 1) -> None:
        """Subtract `amount`."""
        self._value -= amount

    def read(self, source: Callable[[], float]) -> None:
        """Take the value from `source` at each scrape."""
        self._read = source

    @property
    def value(self) -> float:
        """The state now."""
        return float(self._read()) if self._read is not None else self._value


class Histogram:
    """Observations counted in buckets."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds`: rising upper bounds, inclusive, without infinity."""
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """Count `value`, `count` times (the tokens of one frame share their gap)."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    @property
    def count(self) -> int:
        """Observations so far."""
        return sum(self.counts)

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, observations up to it) as the exposition format wants them, +Inf last."""
        total, rows = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), list(self.counts), strict=True):
            total += count
            rows.append((bound, float(total)))
        return rows
