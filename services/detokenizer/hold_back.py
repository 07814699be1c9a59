"""How far a choice's text may be shown while a stop may still be coming."""

from __future__ import annotations

from services.common.text.stop_matcher import StopCursor, StopMatch
from services.common.text.stop_set import StopSet


class HoldBack:
    """Follows the output bytes of one choice. Only the scheduler decides on a stop; this merely keeps text waiting.

    A match holds its text until the next token arrives, which shows that the scheduler overruled it (a minimum length).
    With `keep_stop` the stop belongs to the text, and only what follows a match is held.
    """

    __slots__ = ("_cursor", "_keep_stop", "_match")

    def __init__(self, stops: StopSet, *, keep_stop: bool) -> None:
        self._cursor = StopCursor(stops)
        self._keep_stop = keep_stop
        self._match: StopMatch | None = None

    def feed(self, piece: bytes) -> None:
        """Take the bytes of the next token, not empty."""
        self._match = self._cursor.feed(piece)

    @property
    def shown_to(self) -> int:
        """Bytes of raw output that no stop can claim any more."""
        if self._match is not None:
            return self._match.end_bytes if self._keep_stop else self._match.keep_bytes
        return self._cursor.position if self._keep_stop else self._cursor.hold_from

    def end_for(self, keep_bytes: int) -> int:
        """Bytes of raw output to keep when the scheduler says a stop begins at `keep_bytes`."""
        if not self._keep_stop:
            return keep_bytes
        matched = self._match is not None and self._match.keep_bytes == keep_bytes
        return self._match.end_bytes if matched and self._match is not None else self._cursor.position
