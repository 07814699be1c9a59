"""RE2 syntax to a tree. RE2 itself has accepted the pattern before, so nothing here checks that it is well formed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from services.common.text.char_set import CharSet, ascii_set_of_pattern, set_of_pattern


class UnsupportedPattern(ValueError):
    """RE2 knows the construct, incremental matching does not."""


class Assertion(Enum):
    """Conditions on a place between two characters."""

    TEXT_START = "\\A"
    TEXT_END = "\\z"
    LINE_START = "^"
    LINE_END = "$"
    WORD_BOUNDARY = "\\b"
    NOT_WORD_BOUNDARY = "\\B"


@dataclass(frozen=True, slots=True)
class Repeat:
    """`low` to `high` times; None is without bound. Greed does not matter, as only the start of a match is asked for."""

    body: Node
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after another."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of them."""

    parts: tuple[Node, ...]


Node = CharSet | Assertion | Repeat | Sequence | Choice

_ESCAPED = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_ASSERTIONS = {"A": Assertion.TEXT_START, "z": Assertion.TEXT_END, "b": Assertion.WORD_BOUNDARY, "B": Assertion.NOT_WORD_BOUNDARY}
_COUNT = re.compile(r"\{(\d+)(,(\d*))?\}")
_GROUP = re.compile(r"\(\?(?:P?<(?P<name>[^>]*)>|(?P<flags>[imsU]*(?:-[imsU]+)?)(?P<end>[:)]))")
_NUMBER = re.compile(r"\\(?:x\{(?P<long>[0-9A-Fa-f]+)\}|x(?P<hex>[0-9A-Fa-f]{2})|(?P<octal>[0-7]{1,3}))")
_CLASS = re.compile(r"\\[pP](?:\{[^}]*\}|.)|\\[dDsSwW]|\[:\^?[a-z]+:\]")


def parse_regex(pattern: str) -> Node:
    """Tree of a pattern that RE2 accepts. Raises UnsupportedPattern."""
    return _Parser(pattern).choice(frozenset())


Flags = frozenset[str]


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._literal = False  # between \Q and \E

    def choice(self, flags: Flags) -> Node:
        parts: list[Node] = []
        items: list[Node] = []
        while self._at < len(self._text):
            character = self._text[self._at]
            if not self._literal and character == ")":
                break
            if not self._literal and character == "|":
                self._at += 1
                parts.append(Sequence(tuple(items)))
                items = []
                continue
            flags = self._item(items, flags)
        parts.append(Sequence(tuple(items)))
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _item(self, items: list[Node], flags: Flags) -> Flags:
        """Parse one item onto `items`; returns the flags that hold from here on."""
        text, at = self._text, self._at
        if self._literal:
            return self._quoted(items, flags)
        if text.startswith("\\Q", at):
            self._at, self._literal = at + 2, True
        elif text.startswith("\\E", at):
            self._at = at + 2
        elif text[at] == "(":
            return self._group(items, flags)
        elif text[at] in "*+?" or (text[at] == "{" and _COUNT.match(text, at)):
            self._repeat(items)
        else:
            items.append(self._atom(flags))
        return flags

    def _quoted(self, items: list[Node], flags: Flags) -> Flags:
        if self._text.startswith("\\E", self._at):
            self._at, self._literal = self._at + 2, False
        else:
            items.append(_character(self._text[self._at], flags))
            self._at += 1
        return flags

    def _group(self, items: list[Node], flags: Flags) -> Flags:
        opened = _GROUP.match(self._text, self._at)
        inner = flags
        if opened is None:
            self._at += 1
        else:
            self._at = opened.end()
            if opened["name"] is None:
                on, _, off = opened["flags"].partition("-")
                inner = (flags | set(on)) - set(off)
                if opened["end"] == ")":
                    return inner
        items.append(self.choice(inner))
        self._at += 1
        return flags

    def _repeat(self, items: list[Node]) -> None:
        counted = _COUNT.match(self._text, self._at)
        if counted:
            low = int(counted[1])
            high = low if counted[2] is None else int(counted[3]) if counted[3] else None
            self._at = counted.end()
        else:
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[self._text[self._at]]
            self._at += 1
        if self._text.startswith("?", self._at):
            self._at += 1
        items.append(Repeat(items.pop(), low, high))

    def _atom(self, flags: Flags) -> Node:
        text, at = self._text, self._at
        character = text[at]
        if character == "[":
            return self._bracket(flags)
        if character == "\\":
            return self._escape(flags)
        self._at += 1
        if character == ".":
            return CharSet.of([(0, 0x10FFFF)]) if "s" in flags else CharSet.characters("\n").inverted()
        if character == "^":
            return Assertion.LINE_START if "m" in flags else Assertion.TEXT_START
        if character == "$":
            return Assertion.LINE_END if "m" in flags else Assertion.TEXT_END
        return _character(character, flags)

    def _escape(self, flags: Flags) -> Node:
        following = self._text[self._at + 1]
        if (members := self._class_escape(flags)) is not None:
            return members
        if following in _ASSERTIONS:
            self._at += 2
            return _ASSERTIONS[following]
        if following == "C":
            raise UnsupportedPattern("\\C (one byte) is not supported")
        return _character(self._escaped_character(), flags)

    def _class_escape(self, flags: Flags) -> CharSet | None:
        """Members of a class such as `\\d`, `\\PL` or, inside brackets, `[:alpha:]`; None if there is none here."""
        found = _CLASS.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        name = found[0]
        if name.startswith("["):
            members, negated = ascii_set_of_pattern(f"[{name.replace('^', '')}]"), "^" in name
        elif name[1] in "pP":
            members, negated = set_of_pattern("\\p" + name[2:].replace("^", "")), (name[1] == "P") != ("^" in name)
        else:
            members, negated = ascii_set_of_pattern(name.lower()), name[1].isupper()
        members = members.folded() if "i" in flags else members
        return members.inverted() if negated else members

    def _escaped_character(self) -> str:
        number = _NUMBER.match(self._text, self._at)
        if number is not None:
            self._at = number.end()
            if number["octal"] is not None:
                return chr(int(number["octal"], 8))
            return chr(int(number["long"] or number["hex"], 16))
        self._at += 2
        escaped = self._text[self._at - 1]
        return _ESCAPED.get(escaped, escaped)

    def _bracket(self, flags: Flags) -> CharSet:
        self._at += 1
        negated = self._text.startswith("^", self._at)
        self._at += negated
        first = self._at
        classes: list[tuple[int, int]] = []
        ranges: list[tuple[int, int]] = []
        while self._at == first or self._text[self._at] != "]":
            members = self._class_escape(flags)
            if members is not None:
                classes += members.ranges
            else:
                ranges.append(self._range())
        self._at += 1
        own = CharSet.of(ranges)
        own = own.folded() if "i" in flags else own
        union = CharSet.of([*classes, *own.ranges])
        return union.inverted() if negated else union

    def _range(self) -> tuple[int, int]:
        low = self._bracket_character()
        if self._text.startswith("-", self._at) and self._text[self._at + 1] != "]":
            self._at += 1
            return low, self._bracket_character()
        return low, low

    def _bracket_character(self) -> int:
        if self._text[self._at] == "\\":
            return ord(self._escaped_character())
        self._at += 1
        return ord(self._text[self._at - 1])


def _character(character: str, flags: Flags) -> CharSet:
    members = CharSet.characters(character)
    return members.folded() if "i" in flags else members
