"""Two servers against each other: ratios of pairs of runs, and how much they vary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from headrace.bench.summary import Summary

MEASURES: dict[str, tuple[Callable[[Summary], float], bool]] = {
    # name: (value of a run, is more better)
    "output tok/s": (lambda s: s.output_rate, True),
    "requests/s": (lambda s: s.request_rate, True),
    "median TTFT": (lambda s: s.ttft.median, False),
    "p99 TTFT": (lambda s: s.ttft.p99, False),
    "median TPOT": (lambda s: s.tpot.median, False),
    "p99 ITL": (lambda s: s.itl.p99, False),
    "max ITL": (lambda s: s.itl.max, False),
}


@dataclass(frozen=True, slots=True)
class Ratio:
    """A over B for one measure: median of the pairs and their extremes."""

    name: str
    a: float
    b: float
    middle: float
    least: float
    most: float
    more_is_better: bool

    @property
    def decided(self) -> bool:
        """All pairs agree on who is better."""
        return self.least > 1 or self.most < 1


def ratios(pairs: Sequence[tuple[Summary, Summary]]) -> list[Ratio]:
    """One ratio per measure that both sides have."""
    found = []
    for name, (value, more) in MEASURES.items():
        values = [(value(a), value(b)) for a, b in pairs if value(a) > 0 and value(b) > 0]
        if values:
            each = [a / b for a, b in values]
            a, b = median(v[0] for v in values), median(v[1] for v in values)
            found.append(Ratio(name, a, b, median(each), min(each), max(each), more))
    return found


def table(found: Sequence[Ratio], name_a: str, name_b: str, pairs: int) -> str:
    """Medians of both sides, the ratio A/B, its spread, and whether it says anything."""
    lines = [f"A = {name_a}", f"B = {name_b}", f"{pairs} alternating pairs of runs", ""]
    lines.append(f"{'':14} {'A (median)':>12} {'B (median)':>12} {'A/B':>7}  {'spread':>15}")
    for ratio in found:
        scale = 1.0 if ratio.more_is_better else 1e3
        unit = "" if ratio.more_is_better else " ms"
        better = "A" if (ratio.middle > 1) == ratio.more_is_better else "B"
        lines.append(
            f"{ratio.name:14} {scale * ratio.a:>9.1f}{unit:3} {scale * ratio.b:>9.1f}{unit:3} {ratio.middle:>7.2f}  "
            f"{ratio.least:>6.2f} .. {ratio.most:<5.2f} {better + ' is better' if ratio.decided else 'undecided'}"
        )
    return "\n".join(lines)
