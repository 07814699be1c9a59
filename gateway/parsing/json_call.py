"""One tool call written as a JSON object, read character by character.

    {"name": "f", "arguments": {…}}      keys in any order; "parameters" means the same as "arguments"

The arguments pass through as they come; bare control characters inside strings are escaped, so that what has passed
through is JSON.
"""

from __future__ import annotations

import json
from enum import Enum, auto

from gateway.parsing.events import CallArguments, CallBegin, CallEnd, Event

_SPACE = " \t\r\n"
_ESCAPED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
NAME_KEYS = ("name",)
ARGUMENT_KEYS = ("arguments", "parameters")


class Value:
    """Recognises one JSON value. `feed` takes a character and says whether it belongs to the value."""

    def __init__(self) -> None:
        self.done = False
        self.text: list[str] = []
        self._depth = 0
        self._in_string = False
        self._escape = False
        self._scalar = False

    @property
    def is_string(self) -> bool:
        """Is the value a JSON string?"""
        return bool(self.text) and self.text[0] == '"'

    def feed(self, char: str) -> bool:
        """False: the value ended before this character."""
        if self._in_string:
            self._string(char)
            return True
        if not self.text and char in _SPACE:
            return True
        if self._scalar and (char in _SPACE or char in ",}]"):
            self.done = True
            return False
        if char == '"':
            self._in_string = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            self.done = self._depth <= 0
        elif not self.text:
            self._scalar = True
        self.text.append(char)
        return True

    def _string(self, char: str) -> None:
        if self._escape:
            self._escape = False
        elif char == "\\":
            self._escape = True
        elif char == '"':
            self._in_string = False
            self.done = self._depth == 0
        elif char < " ":
            char = _ESCAPED.get(char, f"\\u{ord(char):04x}")
        self.text.append(char)


class _At(Enum):
    START = auto()
    KEY = auto()
    COLON = auto()
    VALUE = auto()
    COMMA = auto()
    END = auto()
    BROKEN = auto()


class JsonCall:
    """Reads one call. After `done` the text that was not consumed belongs to what follows."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.name = ""
        self._at = _At.START
        self._key = Value()
        self._value = Value()
        self._role = ""
        self._sent = 0
        self._begun = False
        self._held: list[str] = []
        self._has_arguments = False

    @property
    def done(self) -> bool:
        """Has the object ended?"""
        return self._at is _At.END

    @property
    def broken(self) -> bool:
        """Is this no call after all?"""
        return self._at is _At.BROKEN

    @property
    def begun(self) -> bool:
        """Has the call been announced?"""
        return self._begun

    @property
    def named(self) -> bool:
        """Has the key of the name been read? Then it is meant as a call."""
        return self._begun or self._role == "name"

    @property
    def likely(self) -> bool:
        """Does what has come of it look like the beginning of a call?"""
        if self._role:
            return self._role != "other"
        key = "".join(self._key.text)[1:]
        return any(name.startswith(key) for name in (*NAME_KEYS, *ARGUMENT_KEYS))

    def feed(self, text: str) -> tuple[int, list[Event]]:
        """(characters consumed, what they brought). Stops at the object's end and at what cannot be a call."""
        events: list[Event] = []
        at = 0
        while at < len(text) and self._at not in (_At.END, _At.BROKEN):
            if self._step(text[at], events):
                at += 1
        self._pass_on(events)
        return at, events

    def _step(self, char: str, events: list[Event]) -> bool:
        if self._at is _At.KEY:
            self._read_key(char)
        elif self._at is _At.VALUE:
            consumed = self._value.feed(char)
            if self._value.done:
                self._end_value(events)
            return consumed
        elif char in _SPACE:
            pass
        elif self._at is _At.START:
            self._at = _At.KEY if char == "{" else _At.BROKEN
        elif self._at is _At.COLON:
            self._at = _At.VALUE if char == ":" else _At.BROKEN
            self._value, self._sent = Value(), 0
        elif self._at is _At.COMMA:
            self._after_value(char, events)
        return True

    def _read_key(self, char: str) -> None:
        if not self._key.text and char in _SPACE:
            return
        if not self._key.text and char != '"':
            self._at = _At.END if char == "}" and self._begun else _At.BROKEN
            return
        self._key.feed(char)
        if self._key.done:
            key = _loads("".join(self._key.text))
            self._role = "name" if key in NAME_KEYS else "arguments" if key in ARGUMENT_KEYS else "other"
            self._at = _At.COLON

    def _after_value(self, char: str, events: list[Event]) -> None:
        if char == ",":
            self._at, self._key = _At.KEY, Value()
        elif char == "}" and self.name:
            if not self._has_arguments:
                events.append(CallArguments(self.index, "{}"))
            events.append(CallEnd(self.index))
            self._at = _At.END
        else:
            self._at = _At.BROKEN

    def _end_value(self, events: list[Event]) -> None:
        self._at = _At.COMMA
        text = "".join(self._value.text)
        if self._role == "name":
            name = _loads(text)
            if not isinstance(name, str) or not name:
                self._at = _At.BROKEN
                return
            self.name = name
            self._begun = True
            events.append(CallBegin(self.index, name))
            if self._held:
                events.append(CallArguments(self.index, "".join(self._held)))
                self._held.clear()
        elif self._role == "arguments":
            self._has_arguments = True
            if self._value.is_string:
                inner = _loads(text)
                self._emit(inner if isinstance(inner, str) and inner else "{}", events)
            else:
                self._pass_on(events)
            self._role = "other"

    def _pass_on(self, events: list[Event]) -> None:
        """Send what has come of the arguments. A string value waits for its end: it may hold encoded JSON."""
        if self._role != "arguments" or self._value.is_string or self._at not in (_At.VALUE, _At.COMMA):
            return
        new = "".join(self._value.text[self._sent :])
        self._sent = len(self._value.text)
        if new:
            self._emit(new, events)

    def _emit(self, text: str, events: list[Event]) -> None:
        if self._begun:
            events.append(CallArguments(self.index, text))
        else:
            self._held.append(text)


def _loads(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None
