"""Regexes with fewer readings of a text: `((a*)*|a+)*` says `a*`, and a backend that follows every reading has one to follow.

A matcher's cost grows with the readings of the output so far, for nested loops with a power of its length.
"""

from __future__ import annotations

from collections.abc import Iterable

from services.common.text.char_set import CharSet
from services.common.text.regex_syntax import Choice, Node, Repeat, Sequence

_NOTHING = Sequence(())
_MOST_REPEAT = 100_000


def simplified(tree: Node) -> Node:
    """A tree of the same texts. Anchors were taken off before."""
    match tree:
        case Sequence(parts):
            return _sequence(map(simplified, parts))
        case Choice(parts):
            return _choice(map(simplified, parts))
        case Repeat(body, low, high):
            return _repeat(simplified(body), low, high)
        case _:
            return tree


def _may_be_empty(tree: Node) -> bool:
    match tree:
        case Sequence(parts):
            return all(map(_may_be_empty, parts))
        case Choice(parts):
            return any(map(_may_be_empty, parts))
        case Repeat(body, low, _):
            return low == 0 or _may_be_empty(body)
        case _:
            return False


def _sequence(parts: Iterable[Node]) -> Node:
    """Repetitions of the same thing, one after the other, are one."""
    flat: list[Node] = []
    for part in parts:
        for piece in part.parts if isinstance(part, Sequence) else (part,):
            merged = _joined(flat[-1], piece) if flat else None
            if merged is None:
                flat.append(piece)
            else:
                flat[-1] = merged
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def _joined(one: Node, other: Node) -> Node | None:
    """Two neighbours as one repetition, if one of them is open about its length; else there is only one reading anyway."""
    body, low, high = _times(one)
    other_body, other_low, other_high = _times(other)
    if body != other_body or (low == high and other_low == other_high):
        return None
    return Repeat(body, low + other_low, None if high is None or other_high is None else high + other_high)


def _times(tree: Node) -> tuple[Node, int, int | None]:
    return (tree.body, tree.low, tree.high) if isinstance(tree, Repeat) else (tree, 1, 1)


def _choice(parts: Iterable[Node]) -> Node:
    """Each alternative once; single characters are one class."""
    flat = list(dict.fromkeys(piece for part in parts for piece in (part.parts if isinstance(part, Choice) else (part,))))
    letters = [piece for piece in flat if isinstance(piece, CharSet)]
    if len(letters) > 1:
        flat = [CharSet.of(span for letter in letters for span in letter.ranges), *(p for p in flat if not isinstance(p, CharSet))]
    return flat[0] if len(flat) == 1 else Choice(tuple(flat))


def _repeat(body: Node, low: int, high: int | None) -> Node:
    if high == 0 or body == _NOTHING:
        return _NOTHING
    if (low, high) == (1, 1):
        return body
    if _may_be_empty(body):
        low = 0
    if low == 0 and high is None:
        steps = _choice(_steps(body))
        return _NOTHING if steps == Choice(()) else Repeat(steps, 0, None)
    return _nested(body, low, high) if isinstance(body, Repeat) else Repeat(body, low, high)


def _steps(body: Node) -> Iterable[Node]:
    """What one round of a loop over `body` may be, taken apart as far as the loop puts it together again."""
    match body:
        case Choice(parts):
            for part in parts:
                yield from _steps(part)
        case Sequence(parts) if _may_be_empty(body):
            for part in parts:
                yield from _steps(part)
        case Repeat(inner, low, _) if low <= 1:
            yield from _steps(inner)
        case _:
            yield body


def _nested(body: Repeat, low: int, high: int | None) -> Node:
    """`(x{a,b}){low,high}` as one repetition of x, if every count between the least and the most can be reached."""
    least, most = body.low, body.high
    whole = None if high is None or most is None else most * high
    if low == high:
        gapless = True
    elif most is None:
        gapless = low > 0 or least <= 1
    else:
        gapless = least - 1 <= (most - least) * low
    return Repeat(body.body, least * low, whole) if gapless and (whole or 0) <= _MOST_REPEAT else Repeat(body, low, high)
