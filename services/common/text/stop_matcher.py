"""Stop strings and regexes matched on output bytes, in the scheduler (which decides) and the detokenizer (which holds back).

The result depends on the ids alone, never on how they are grouped: ids are taken one by one, and of the matches that
one id completes the one that begins first wins; at the same place a string before a regex, then the lower index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.common.text.regex_cursor import RegexCursor
from services.common.text.stop_set import StopSet
from services.common.text.stop_strings import StopStrings
from services.common.text.token_bytes import OutputBytes


@dataclass(frozen=True, slots=True)
class StopMatch:
    """A completed match. `token_index` is the index, among the ids of one `feed`, of the id that completed it.

    `keep_bytes` counts the bytes of raw output before the match, `end_bytes` those up to its end.
    """

    token_index: int
    keep_bytes: int
    end_bytes: int
    stop_index: int | None = None
    regex_index: int | None = None


class StopCursor:
    """Follows one choice's output bytes. After a match it may go on, as a match can be overruled (minimum length)."""

    __slots__ = ("_regexes", "_state", "_strings", "position")

    def __init__(self, stops: StopSet) -> None:
        self._strings: StopStrings | None = stops.strings
        self._regexes = tuple(RegexCursor(search) for search in stops.regexes)
        self._state = 0
        self.position = 0  # bytes taken

    def feed(self, piece: bytes, token_index: int = 0) -> StopMatch | None:
        """Take the bytes of one token."""
        best = self._feed_strings(piece, token_index) if self._strings is not None else None
        for index, regex in enumerate(self._regexes):
            found = regex.feed(piece)
            if found is not None and (best is None or found[0] < best.keep_bytes):
                best = StopMatch(token_index, found[0], found[1], regex_index=index)
        self.position += len(piece)
        return best

    @property
    def hold_from(self) -> int:
        """First byte that may still turn out to be part of a stop; `position` if none may."""
        held = self.position
        if self._strings is not None:
            held -= self._strings.depth(self._state)
        for regex in self._regexes:
            held = min(held, regex.open_from)
        return held

    def _feed_strings(self, piece: bytes, token_index: int) -> StopMatch | None:
        strings = self._strings
        assert strings is not None
        state, best = self._state, None
        if state == 0 and strings.first_bytes.isdisjoint(piece):
            return None
        for offset, byte in enumerate(piece, self.position + 1):
            state = strings.step(state, byte)
            found = strings.match(state)
            if found is not None:
                start = offset - found[0]
                if best is None or (start, found[1]) < (best.keep_bytes, best.stop_index or 0):
                    best = StopMatch(token_index, start, offset, stop_index=found[1])
        self._state = state
        return best


class StopMatcher:
    """Watches the output ids of one choice. `feed` costs time linear in their bytes."""

    __slots__ = ("_cursor", "_output")

    def __init__(self, stops: StopSet, output: OutputBytes) -> None:
        self._cursor = StopCursor(stops)
        self._output = output

    def feed(self, ids: Sequence[int]) -> StopMatch | None:
        """Take new output ids in order; the first match they complete, if any. Later ids are then not taken."""
        for index, token_id in enumerate(ids):
            piece = self._output.piece(int(token_id))
            if piece and (match := self._cursor.feed(piece, index)) is not None:
                return match
        return None
