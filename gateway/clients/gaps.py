"""Times between tokens, as one engine step shows them."""

from __future__ import annotations

from services.common.instruments import Histogram


class Gaps:
    """Most rows of a step had their last token at the same time, so runs of equal gaps are counted, not observed one by one."""

    __slots__ = ("_alike", "_before", "_histogram", "now")

    def __init__(self, histogram: Histogram | None, now: float) -> None:
        self.now = now
        self._histogram = histogram
        self._before = now
        self._alike = 0

    def add(self, before: float, tokens: int = 1) -> None:
        """`tokens` have come together, the one before them at `before`."""
        if before != self._before or tokens > 1:
            self.flush()
            self._before = before
            if tokens > 1:
                if self._histogram is not None:
                    self._histogram.observe((self.now - before) / tokens, tokens)
                return
        self._alike += 1

    def add_alike(self, before: float, rows: int) -> None:
        """One token has come for each of so many rows, whose last came at `before`."""
        if rows and self._histogram is not None:
            self._histogram.observe(self.now - before, rows)

    def flush(self) -> None:
        """Observe what was counted."""
        if self._alike and self._histogram is not None:
            self._histogram.observe(self.now - self._before, self._alike)
        self._alike = 0
