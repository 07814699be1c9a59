"""One regex followed through one choice's output bytes."""

from __future__ import annotations

import codecs

from services.common.text.regex_search import INVALID, RegexSearch


class RegexCursor:
    """Takes bytes in order; offsets count from the first byte ever taken."""

    __slots__ = ("_pending", "_search", "_starts", "_state", "position")

    def __init__(self, search: RegexSearch) -> None:
        self._search = search
        self._state = search.initial
        self._starts: list[int] = []
        self._pending = b""
        self.position = 0  # bytes of complete characters taken

    def feed(self, data: bytes) -> tuple[int, int] | None:
        """(start, end) of the match with the earliest start among those that `data` completes.

        The end of `data` counts as the end of the text, for `$` and word boundaries.
        """
        found: tuple[int, int] | None = None
        for character, width in self._characters(data):
            found = self._step(character, width, found)
        matched = self._state.matched_before_other if self._pending else self._state.matched_at_end
        if matched is not None:
            found = self._earlier(found, matched)
        return found

    @property
    def open_from(self) -> int:
        """First byte that a match still in progress may begin with; `position` if none is."""
        return self._starts[0] if self._starts else self.position

    def _characters(self, data: bytes) -> list[tuple[str, int]]:
        data = self._pending + data
        text, used = codecs.utf_8_decode(data, "surrogateescape", False)
        self._pending = data[used:]
        return [(INVALID, 1) if "\ud800" <= c <= "\udfff" else (c, len(c.encode())) for c in text]

    def _step(self, character: str, width: int, found: tuple[int, int] | None) -> tuple[int, int] | None:
        edge = self._search.step(self._state, character)
        if edge.matched is not None:
            found = self._earlier(found, edge.matched)
        if not edge.same_places:
            starts = [*self._starts, self.position]
            self._starts = [starts[index] for index in edge.kept]
        self._state = edge.state
        self.position += width
        return found

    def _earlier(self, found: tuple[int, int] | None, place: int) -> tuple[int, int]:
        start = self._starts[place] if place < len(self._starts) else self.position
        return found if found is not None and found[0] < start else (start, self.position)
