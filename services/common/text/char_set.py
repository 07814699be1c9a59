"""Sets of code points, as sorted ranges."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import re2

_LAST = 0x10FFFF
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class CharSet:
    """Disjoint inclusive ranges in ascending order."""

    ranges: Ranges

    @staticmethod
    def of(ranges: Iterable[tuple[int, int]]) -> CharSet:
        """The union of any ranges."""
        merged: list[tuple[int, int]] = []
        for low, high in sorted(ranges):
            if merged and low <= merged[-1][1] + 1:
                merged[-1] = merged[-1][0], max(high, merged[-1][1])
            else:
                merged.append((low, high))
        return CharSet(tuple(merged))

    @staticmethod
    def characters(text: str) -> CharSet:
        """The set of the characters of `text`."""
        return CharSet.of((ord(c), ord(c)) for c in text)

    def __contains__(self, code_point: int) -> bool:
        index = bisect_right(self.ranges, (code_point, _LAST)) - 1
        return index >= 0 and code_point <= self.ranges[index][1]

    def inverted(self) -> CharSet:
        """Every other code point."""
        gaps: list[tuple[int, int]] = []
        following = 0
        for low, high in self.ranges:
            if low > following:
                gaps.append((following, low - 1))
            following = high + 1
        if following <= _LAST:
            gaps.append((following, _LAST))
        return CharSet(tuple(gaps))


@lru_cache(maxsize=256)
def set_of_pattern(pattern: str) -> CharSet:
    """The code points a one-character RE2 pattern matches, found by asking RE2 about all of them (some 20 ms)."""
    everything = "".join(map(chr, (*range(0xD800), *range(0xE000, _LAST + 1)))).encode()
    runs = (found.group().decode() for found in re2.compile(f"(?s)(?:{pattern})+".encode()).finditer(everything))
    return CharSet.of((ord(run[0]), ord(run[-1])) for run in runs)
