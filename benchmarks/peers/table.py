"""The comparison as a table: for a terminal, and for a page of documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.targets import TARGETS, UNITS, Target

Values = dict[tuple[str, str, str], dict[int, float]]  # (load, metric, server) → value by round
Floors = Mapping[tuple[str, str, str], float]  # the same keys → what the matrix products alone would take


@dataclass(frozen=True, slots=True)
class Row:
    """One line: medians of both sides, and the median of the ratios of the rounds that both finished."""

    target: Target
    ours: float
    peer: float
    floor: float | None
    ratio: float
    least: float
    most: float
    rounds: int

    @property
    def verdict(self) -> str:
        return self.target.judge(self.ratio, self.ours)


def rows(values: Values, floors: Floors) -> list[Row]:
    """Every target that has a round with both sides in it."""
    found = []
    for target in TARGETS:
        key = (target.load, target.metric, target.ours)
        ours, peer = values.get(key, {}), values.get((target.load, target.metric, target.peer), {})
        both = [number for number in ours if number in peer]
        if both:
            each = [ours[number] / peer[number] for number in both]
            mine, other = (median(side[number] for number in both) for side in (ours, peer))
            found.append(Row(target, mine, other, floors.get(key), median(each), min(each), max(each), len(both)))
    return found


def agreement(one: Values, other: Values) -> list[tuple[str, str, str, float]]:
    """(load, metric, server, median ratio of the rounds that both have) of what two clients saw."""
    found = []
    for key in one:
        each = [one[key][number] / other[key][number] for number in one[key] if other.get(key, {}).get(number)]
        if each:
            found.append((*key, median(each)))
    return found


def text(found: Sequence[Row]) -> str:
    """Columns of equal width."""
    return _aligned([_HEAD, *(_cells(row) for row in found)])


def markdown(found: Sequence[Row]) -> str:
    """A table of a page."""
    lines = [_HEAD, ["---"] * len(_HEAD), *(_cells(row) for row in found)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]

    def aligned(line: Sequence[str]) -> str:
        cells = [
            cell.rjust(width) if i in _NUMBERS else cell.ljust(width) for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        return "  ".join(cells).rstrip()

    return "\n".join(aligned(line) for line in lines)


_NUMBERS = (3, 5, 6, 7, 9)
_HEAD = ["load", "figure", "ours", "", "peer", "", "floor", "ratio", "spread", "rounds", "must", "goal", "reaches"]


def _cells(row: Row) -> list[str]:
    target = row.target
    unit = UNITS[target.metric]
    goal = target.goal_value if target.goal is None else target.goal
    return [
        target.load,
        f"{target.metric}, {unit}" if unit else target.metric,
        target.ours,
        _short(row.ours),
        target.peer,
        _short(row.peer),
        "" if row.floor is None else _short(row.floor),
        f"{row.ratio:.2f}",
        f"{row.least:.2f}–{row.most:.2f}",
        str(row.rounds),
        "" if target.must is None else f"{'≤' if target.at_most else '≥'} {target.must:.2f}",
        "" if goal is None else f"{goal:.2f}" if target.goal is not None else f"≤ {goal:g} {unit}",
        row.verdict,
    ]


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 20 else f"{value:.2f}"
