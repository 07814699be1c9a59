"""Where more users stop buying throughput."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Level:
    """One concurrency cap and what it gave. Times in seconds."""

    cap: int
    output_rate: float
    ttft_median: float
    ttft_p99: float
    tpot_median: float
    tpot_p99: float
    itl_max: float
    failed: int = 0


def knee(levels: Sequence[Level], gain: float) -> Level:
    """The smallest cap that gives the best throughput within `gain` (0.05: five percent).

    Beyond it requests only wait for a share of the same steps.
    """
    best = max(level.output_rate for level in levels)
    return next(level for level in levels if level.output_rate * (1 + gain) >= best)


def within(levels: Sequence[Level], ttft: float | None, tpot: float | None) -> Level | None:
    """The highest cap whose p99 still meets the targets (seconds); None if no cap does."""
    good = [v for v in levels if (ttft is None or v.ttft_p99 <= ttft) and (tpot is None or v.tpot_p99 <= tpot)]
    return good[-1] if good else None
