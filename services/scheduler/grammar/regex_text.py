"""Regexes in one dialect (RE2's), written out so plainly that no backend can read them differently.

Classes, flags and escapes become explicit sets of characters; what has no such form (word boundaries, anchors in the
middle) is refused by name. A regex constraint describes the whole output; a JSON Schema `pattern` may match anywhere
in a string unless it is anchored.
"""

from __future__ import annotations

from services.common.text.char_set import CharSet, Ranges
from services.common.text.re2_pattern import BadPattern, compiled
from services.common.text.regex_syntax import Assertion, Choice, Node, Repeat, Sequence, UnsupportedPattern, parse_regex
from services.scheduler.grammar.regex_simple import simplified

MAX_CHARACTERS = 4096
MAX_REPEAT = 100_000
ANY_CHARACTER = CharSet(((0, 0xD7FF), (0xE000, 0x10FFFF)))
_ANYTHING = Repeat(ANY_CHARACTER, 0, None)
_STARTS = (Assertion.TEXT_START,)
_ENDS = (Assertion.TEXT_END,)


class BadRegex(ValueError):
    """Not a regex of this dialect; the message says what and where."""


def parse_whole(pattern: str) -> Node:
    """Tree of a regex that describes a whole text; `^` at its start and `$` at its end change nothing."""
    return simplified(_checked(_anchored(_parse(pattern), open_ends=False), pattern))


def parse_search(pattern: str) -> Node:
    """Tree of all texts in which the regex matches somewhere."""
    return simplified(_checked(_anchored(_parse(pattern), open_ends=True), pattern))


def matches_somewhere(pattern: str, text: str) -> bool:
    """Whether a checked pattern matches in a text."""
    return compiled(pattern).search(text) is not None


def _parse(pattern: str) -> Node:
    if len(pattern) > MAX_CHARACTERS:
        raise BadRegex(f"{len(pattern)} characters, at most {MAX_CHARACTERS} are allowed")
    try:
        compiled(pattern)
        return parse_regex(pattern)
    except BadPattern as error:
        raise BadRegex(f"{pattern!r} is not a regular expression RE2 accepts: {error}") from error
    except (UnsupportedPattern, RecursionError, UnicodeEncodeError) as error:
        raise BadRegex(f"{pattern!r}: {error}") from error


def _anchored(tree: Node, *, open_ends: bool) -> Node:
    """Take anchors off the ends of every alternative; where one is missing, anything may stand if `open_ends`."""
    if isinstance(tree, Choice):
        return Choice(tuple(_anchored(part, open_ends=open_ends) for part in tree.parts))
    parts = list(tree.parts) if isinstance(tree, Sequence) else [tree]
    starts, ends = bool(parts) and parts[0] in _STARTS, bool(parts) and parts[-1] in _ENDS
    while parts and parts[0] in _STARTS:
        parts.pop(0)
    while parts and parts[-1] in _ENDS:
        parts.pop()
    if open_ends and len(parts) == 1 and isinstance(parts[0], Choice) and not starts and not ends:
        return _anchored(parts[0], open_ends=True)
    if open_ends:
        parts = [*([] if starts else [_ANYTHING]), *parts, *([] if ends else [_ANYTHING])]
    return Sequence(tuple(parts))


def _checked(tree: Node, pattern: str) -> Node:
    match tree:
        case Assertion():
            raise BadRegex(f"{pattern!r}: {tree.value} is only supported at the start or the end of the pattern")
        case CharSet():
            allowed = _intersection(tree, ANY_CHARACTER)
            if not allowed.ranges:
                raise BadRegex(f"{pattern!r}: a character class matches nothing")
            return allowed
        case Repeat(body, low, high):
            if max(low, high or 0) > MAX_REPEAT:
                raise BadRegex(f"{pattern!r}: more than {MAX_REPEAT} repetitions")
            return Repeat(_checked(body, pattern), low, high)
        case Sequence(parts):
            return Sequence(tuple(_checked(part, pattern) for part in parts))
        case Choice(parts):
            return Choice(tuple(_checked(part, pattern) for part in parts))


def _intersection(one: CharSet, other: CharSet) -> CharSet:
    pairs = ((max(a, c), min(b, d)) for a, b in one.ranges for c, d in other.ranges)
    return CharSet.of((low, high) for low, high in pairs if low <= high)


_RAW_IN_JSON = CharSet.of([(0x20, 0x21), (0x23, 0x5B), (0x5D, 0xD7FF), (0xE000, 0x10FFFF)])


def without_escapes(tree: Node) -> Node | None:
    """The texts of a tree that stand in a JSON string as they are, without escape sequences; None if there are none."""
    match tree:
        case CharSet():
            raw = _intersection(tree, _RAW_IN_JSON)
            return raw if raw.ranges else None
        case Repeat(body, low, high):
            inner = without_escapes(body)
            if inner is not None:
                return Repeat(inner, low, high)
            return None if low else Sequence(())
        case Sequence(parts):
            kept = [without_escapes(part) for part in parts]
            return None if None in kept else Sequence(tuple(part for part in kept if part is not None))
        case Choice(parts):
            possible = tuple(part for part in map(without_escapes, parts) if part is not None)
            return Choice(possible) if possible else None
        case Assertion():
            raise AssertionError("anchors were taken off before")


def lengths(tree: Node) -> tuple[int, int | None]:
    """Characters of the shortest and the longest text of a tree; None if there is no longest."""
    match tree:
        case CharSet():
            return 1, 1
        case Repeat(body, low, high):
            least, most = lengths(body)
            if most == 0 or high == 0:
                return 0, 0
            return least * low, None if most is None or high is None else most * high
        case Sequence(parts):
            spans = [lengths(part) for part in parts]
            longest = [most for _, most in spans]
            return sum(least for least, _ in spans), None if None in longest else sum(most for most in longest if most is not None)
        case Choice(parts):
            spans = [lengths(part) for part in parts]
            longest = [most for _, most in spans]
            return min(least for least, _ in spans), None if None in longest else max(most for most in longest if most is not None)
        case Assertion():
            raise AssertionError("anchors were taken off before")


def write(tree: Node) -> str:
    """The regex of a tree, anchored by nothing: it describes a whole text."""
    match tree:
        case CharSet(ranges):
            if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
                return _character(ranges[0][0])
            return _class(ranges)
        case Repeat(body, low, high) if low == 0:
            return "(" + write(Repeat(body, 1, high)) + "|)" if high != 0 else "()"
        case Repeat(body, low, high):
            return _group(body) + _count(low, high)
        case Sequence(parts):
            return "".join(_group(part) if isinstance(part, Choice) else write(part) for part in parts)
        case Choice(parts):
            return "(" + "|".join(write(part) for part in parts) + ")"
        case Assertion():
            raise AssertionError("anchors were taken off before")


def _group(tree: Node) -> str:
    text = write(tree)
    return text if isinstance(tree, CharSet | Choice) else f"({text})"


def _count(low: int, high: int | None) -> str:
    """At least one; what may be absent is written as an alternative, as xgrammar mistakes `(xa+)?` for `(xa+|a*)`."""
    if (low, high) == (1, None):
        return "+"
    return ("" if low == 1 else f"{{{low}}}") if low == high else f"{{{low},{'' if high is None else high}}}"


def _class(ranges: Ranges) -> str:
    """A class that no backend takes for a negated one: a leading circumflex, however written, moves to the end."""
    first_low, first_high = ranges[0]
    if first_low == ord("^"):
        rest = [*([(first_low + 1, first_high)] if first_high > first_low else []), *ranges[1:], (first_low, first_low)]
        ranges = tuple(rest)
    return "[" + "".join(_range(low, high) for low, high in ranges) + "]"


def _range(low: int, high: int) -> str:
    return _character(low) if low == high else f"{_character(low)}-{_character(high)}"


def _character(code: int) -> str:
    if chr(code).isascii() and chr(code).isalnum():
        return chr(code)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\u{{{code:x}}}"
