"""Pythonic: an answer that is a list of Python calls, `[f(a=1, b="x"), g()]`, as Llama 4 and others write."""

from __future__ import annotations

import ast
import json
import re

from gateway.parsing.events import CallArguments, CallBegin, CallEnd, Content, Event
from gateway.parsing.tools.interface import SteppedParser, ToolFamily
from gateway.parsing.tools.pythonic_tag import structural_tag

_HEAD = re.compile(r"\s*([A-Za-z_][\w.\-]*)\(")
_COULD_BE_HEAD = re.compile(r"\s*([A-Za-z_][\w.\-]*)?$")
_KEYWORD = re.compile(r"\s*([A-Za-z_]\w*)\s*=(?!=)")
_LONGEST_NAME = 128


class PythonicParser(SteppedParser):
    """Each argument is passed on once it is whole: a Python literal has no JSON prefix."""

    def __init__(self) -> None:
        super().__init__()
        self._mode = "start"
        self._count = 0
        self._arguments = 0

    def finish(self) -> list[Event]:
        """See ToolParser."""
        rest, self._buffer = self._buffer, ""
        if self.cut and self._mode == "start" and rest.lstrip().startswith("["):
            return []
        return [Content(rest)] if rest and self._mode in ("start", "text") else []

    def _step(self, events: list[Event]) -> bool:
        if self._mode == "start":
            return self._start()
        if self._mode == "text":
            if self._buffer:
                events.append(Content(self._buffer))
            self._buffer = ""
            return False
        if self._mode == "between":
            return self._between(events)
        if self._mode == "arguments":
            return self._argument(events)
        self._buffer = ""
        return False

    def _start(self) -> bool:
        """`[name(` makes it calls; anything else is text."""
        text = self._buffer.lstrip()
        if not text:
            return False
        if text[0] == "[":
            if _HEAD.match(text, 1):
                self._buffer, self._mode = text[1:], "between"
                return True
            if _COULD_BE_HEAD.match(text, 1) and len(text) < _LONGEST_NAME:
                return False
        self._mode = "text"
        return True

    def _between(self, events: list[Event]) -> bool:
        text = self._buffer.lstrip(" \t\r\n,")
        if text.startswith("]"):
            self._mode, self._buffer = "done", ""
            return False
        head = _HEAD.match(text)
        if head is None:
            self._buffer = text
            if text and not _COULD_BE_HEAD.match(text):
                self._mode = "done"
            return False
        events.append(CallBegin(self._count, head.group(1)))
        self._buffer = text[head.end() :]
        self._mode, self._arguments = "arguments", 0
        return True

    def _argument(self, events: list[Event]) -> bool:
        end = _end_of_argument(self._buffer)
        if end is None:
            return False
        source, closing = self._buffer[:end], self._buffer[end] == ")"
        self._buffer = self._buffer[end + 1 :]
        if source.strip():
            pair = _json_pair(source)
            if pair is None:
                self._mode = "done"
                return False
            events.append(CallArguments(self._count, ("{" if not self._arguments else ", ") + pair))
            self._arguments += 1
        if closing:
            events.append(CallArguments(self._count, "}" if self._arguments else "{}"))
            events.append(CallEnd(self._count))
            self._count += 1
            self._mode = "between"
        return True


def _end_of_argument(text: str) -> int | None:
    """Index of the `,` or `)` that ends the first argument of `text`, or None if it has not come yet."""
    depth, quote, at = 0, "", 0
    while at < len(text):
        char = text[at]
        if quote:
            if char == "\\":
                at += 1
            elif char == quote:
                quote = ""
        elif char in "\"'":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            if depth == 0:
                return at
            depth -= 1
        elif char == "," and depth == 0:
            return at
        at += 1
    return None


def _json_pair(source: str) -> str | None:
    """`name=literal` as `"name": value`; None if it is not that."""
    keyword = _KEYWORD.match(source)
    if keyword is None:
        return None
    literal = source[keyword.end() :].strip()
    try:
        value = json.loads(literal)
    except (ValueError, RecursionError):
        try:
            value = ast.literal_eval(literal)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    try:
        return f"{json.dumps(keyword.group(1))}: {json.dumps(value, ensure_ascii=False)}"
    except (TypeError, ValueError):
        return None


PYTHONIC = ToolFamily("pythonic", PythonicParser, structural_tag)
