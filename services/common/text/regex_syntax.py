"""RE2 syntax to a tree. RE2 itself has accepted the pattern before, so nothing here checks that it is well formed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from services.common.text.char_set import CharSet, set_of_pattern


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
_CLASS = re.compile(r"\\[pP](?:\{[^}]*\}|.)|\\[dDsSwW]")
_MEMBER = re.compile(r"\[:\^?[a-z]+:\]|" + _CLASS.pattern)


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
        text, at = self._text, self._at
        if (found := _CLASS.match(text, at)) is not None:
            self._at = found.end()
            return _folded(found[0], flags)
        if text[at + 1] in _ASSERTIONS:
            self._at += 2
            return _ASSERTIONS[text[at + 1]]
        if text[at + 1] == "C":
            raise UnsupportedPattern("\\C (one byte) is not supported")
        return _character(self._escaped_character(), flags)

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
        start = self._at
        self._at += 1
        if self._text.startswith("^", self._at):
            self._at += 1
        first = True
        while first or self._text[self._at] != "]":
            first = False
            member = _MEMBER.match(self._text, self._at)
            if member is not None:
                self._at = member.end()
            elif self._text[self._at] == "\\":
                self._escaped_character()
            else:
                self._at += 1
        self._at += 1
        return _folded(self._text[start : self._at], flags)


def _character(character: str, flags: Flags) -> CharSet:
    if "i" not in flags or character.lower() == character.upper():
        return CharSet.characters(character)
    return set_of_pattern(f"(?i:\\x{{{ord(character):x}}})")


def _folded(one_character_pattern: str, flags: Flags) -> CharSet:
    return set_of_pattern(f"(?i:{one_character_pattern})" if "i" in flags else one_character_pattern)
