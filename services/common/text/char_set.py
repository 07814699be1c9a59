"""Sets of code points, as sorted ranges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import re2

_LAST = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)
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

    def folded(self) -> CharSet:
        """With every code point that differs from a member only by case."""
        cased = _cased()
        members = (c for low, high in self.ranges for c in cased[bisect_left(cased, low) : bisect_right(cased, high)])
        return CharSet.of([*self.ranges, *((c, c) for member in members for c in _same_but_for_case(member))])


@lru_cache(maxsize=512)
def set_of_pattern(pattern: str) -> CharSet:
    """The code points a one-character RE2 pattern matches, found by asking RE2 about all of them (some 20 ms)."""
    everything = "".join(chr(c) for c in range(_LAST + 1) if c not in _SURROGATES).encode()
    runs = (found.group().decode() for found in re2.compile(f"(?s)(?:{pattern})+".encode()).finditer(everything))
    return CharSet.of((ord(run[0]), ord(run[-1])) for run in runs)


@lru_cache(maxsize=64)
def ascii_set_of_pattern(pattern: str) -> CharSet:
    """The ASCII characters a one-character RE2 pattern matches."""
    return CharSet.characters("".join(re2.compile(pattern).findall("".join(map(chr, range(128))))))


@lru_cache(maxsize=1)
def _cased() -> list[int]:
    every = (chr(c) for c in range(_LAST + 1) if c not in _SURROGATES)
    return [ord(c) for c in every if c.lower() != c or c.upper() != c or c.casefold() != c]


@lru_cache(maxsize=8192)
def _same_but_for_case(code_point: int) -> tuple[int, ...]:
    everything = "".join(map(chr, _cased()))
    return tuple(ord(c) for c in re2.compile(f"(?i:\\x{{{code_point:x}}})").findall(everything))
