"""All stop strings of a request as one automaton over output bytes (Aho-Corasick): linear, whatever the strings."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


class StopStrings:
    """Immutable automaton. A state is how much of some stop string the output ends with; state 0 is none of any."""

    __slots__ = ("_depth", "_fail", "_longest", "_next", "first_bytes")

    def __init__(self, strings: Sequence[bytes]) -> None:
        self.first_bytes = frozenset(string[0] for string in strings)
        self._next: list[dict[int, int]] = [{}]
        self._depth = [0]
        self._longest: list[tuple[int, int] | None] = [None]
        for index, string in enumerate(strings):
            self._add(string, index)
        self._fail = [0] * len(self._next)
        self._link()

    def _add(self, string: bytes, index: int) -> None:
        state = 0
        for byte in string:
            if byte not in self._next[state]:
                self._next[state][byte] = len(self._next)
                self._next.append({})
                self._depth.append(self._depth[state] + 1)
                self._longest.append(None)
            state = self._next[state][byte]
        if self._longest[state] is None:
            self._longest[state] = len(string), index

    def _link(self) -> None:
        queue = deque(self._next[0].values())
        while queue:
            state = queue.popleft()
            if self._longest[state] is None:
                self._longest[state] = self._longest[self._fail[state]]
            for byte, child in self._next[state].items():
                self._fail[child] = self.step(self._fail[state], byte)
                queue.append(child)

    def step(self, state: int, byte: int) -> int:
        """State after one more byte; amortized constant."""
        while (following := self._next[state].get(byte)) is None:
            if state == 0:
                return 0
            state = self._fail[state]
        return following

    def depth(self, state: int) -> int:
        """Bytes at the end of the output that may be the start of a stop string."""
        return self._depth[state]

    def match(self, state: int) -> tuple[int, int] | None:
        """(length, index) of the longest stop string the output ends with."""
        return self._longest[state]
