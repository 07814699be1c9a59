"""Lines that say how a long step is going, few enough to read in a log."""

from __future__ import annotations

import time
from collections.abc import Callable

Say = Callable[[str], None]


class Meter:
    """Turns many counts into few lines: one per tenth of the whole, at most one a second, and the last."""

    def __init__(self, say: Say, label: str, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._label, self._unit, self._clock = say, label, unit, clock
        self._tenth = -1
        self._last = float("-inf")

    def at(self, done: float, whole: float) -> None:
        """`done` of `whole`, both in the meter's unit."""
        tenth = int(10 * done / whole) if whole else 10
        now = self._clock()
        if tenth == self._tenth or (now - self._last < 1.0 and tenth < 10):
            return
        self._tenth, self._last = tenth, now
        self._say(f"{self._label}: {done:.0f} of {whole:.0f} {self._unit} ({100 * done / whole if whole else 100:.0f} %)")
