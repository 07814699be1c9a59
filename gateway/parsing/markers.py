"""Finding marker texts in a stream that may be cut anywhere."""

from __future__ import annotations

from collections.abc import Sequence


def first_of(text: str, markers: Sequence[str], start: int = 0) -> tuple[int, str] | None:
    """The earliest marker at or after `start`, the longest where two begin at one place; None if there is none."""
    found: tuple[int, str] | None = None
    for marker in markers:
        at = text.find(marker, start)
        if at >= 0 and (found is None or at < found[0] or (at == found[0] and len(marker) > len(found[1]))):
            found = (at, marker)
    return found


def held_tail(text: str, markers: Sequence[str]) -> int:
    """How many characters at the end of `text` may be the beginning of a marker."""
    longest = max((len(marker) for marker in markers), default=0) - 1
    for length in range(min(longest, len(text)), 0, -1):
        tail = text[-length:]
        if any(marker.startswith(tail) for marker in markers):
            return length
    return 0
