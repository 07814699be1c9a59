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


def sayable(text: str, markers: Sequence[str]) -> int:
    """How much of `text` can be passed on: not the possible beginning of a marker, nor white space that may stand before one."""
    return len(text[: len(text) - held_tail(text, markers)].rstrip())


_A_BEGINNING = 3


def released(rest: str, markers: Sequence[str], *, likely: bool = False) -> str:
    """What of the held text is content once the text has ended: a marker that broke off is not, if enough of it came.

    Where one is `likely`, as after a call or in a text that was cut, one character is enough.
    """
    held = held_tail(rest, markers)
    return rest[: len(rest) - held].rstrip() if held >= (1 if likely else _A_BEGINNING) else rest
