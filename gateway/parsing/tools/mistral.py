"""Mistral: `[TOOL_CALLS]` and then an array of objects, or `name[ARGS]{…}` for each call."""

from __future__ import annotations

import secrets
import string

from gateway.parsing.events import CallArguments, CallBegin, CallEnd, Content, Event
from gateway.parsing.json_call import JsonCall, Value
from gateway.parsing.markers import released, sayable
from gateway.parsing.tools.interface import SteppedParser, ToolFamily

_BEGIN, _ARGS = "[TOOL_CALLS]", "[ARGS]"
_ID_CHARS = string.ascii_letters + string.digits


def mistral_id() -> str:
    """Nine letters and digits: the model's template accepts nothing else."""
    return "".join(secrets.choice(_ID_CHARS) for _ in range(9))


class MistralParser(SteppedParser):
    """Nothing after the marker is content."""

    def __init__(self) -> None:
        super().__init__()
        self._in_calls = False
        self._call: JsonCall | None = None
        self._value: Value | None = None
        self._sent = 0
        self._count = 0

    def finish(self) -> list[Event]:
        """See ToolParser."""
        rest, self._buffer = released(self._buffer, (_BEGIN,)), ""
        return [Content(rest)] if rest and not self._in_calls else []

    def _step(self, events: list[Event]) -> bool:
        if not self._in_calls:
            return self._in_text(events)
        if self._call is not None:
            return self._in_object(self._call, events)
        if self._value is not None:
            return self._in_arguments(self._value, events)
        return self._next_call(events)

    def _in_text(self, events: list[Event]) -> bool:
        at = self._buffer.find(_BEGIN)
        cut = sayable(self._buffer if at < 0 else self._buffer[:at], (_BEGIN,))
        head = self._buffer[:cut]
        if head:
            events.append(Content(head))
        if at < 0:
            self._buffer = self._buffer[cut:]
            return False
        self._buffer = self._buffer[at + len(_BEGIN) :]
        self._in_calls = True
        return True

    def _next_call(self, events: list[Event]) -> bool:
        text = self._buffer.lstrip(" \t\r\n,")
        while text.startswith(_BEGIN):
            text = text[len(_BEGIN) :].lstrip()
        if text.startswith("{"):
            self._call, self._buffer = JsonCall(self._count), text
            return True
        if text.startswith("["):
            if _BEGIN.startswith(text):
                self._buffer = text
                return text == "[" and self._array(text)
            self._buffer = text[1:]
            return True
        if text.startswith("]"):
            self._buffer = text[1:]
            return True
        at = text.find(_ARGS)
        self._buffer = text
        if at < 0:
            return False
        events.append(CallBegin(self._count, text[:at].strip()))
        self._value, self._sent = Value(), 0
        self._buffer = text[at + len(_ARGS) :]
        return True

    def _array(self, text: str) -> bool:
        """A lone `[` right after the marker opens the array; elsewhere it may begin the next marker."""
        if self._count:
            return False
        self._buffer = text[1:]
        return bool(self._buffer)

    def _in_object(self, call: JsonCall, events: list[Event]) -> bool:
        consumed, found = call.feed(self._buffer)
        events += found
        self._buffer = self._buffer[consumed:]
        if not call.done and not call.broken:
            return False
        self._count += call.begun
        self._call = None
        if call.broken:
            self._buffer = ""
        return call.done

    def _in_arguments(self, value: Value, events: list[Event]) -> bool:
        at = 0
        while at < len(self._buffer) and not value.done:
            if not value.feed(self._buffer[at]):
                break
            at += 1
        self._buffer = self._buffer[at:]
        new = "".join(value.text[self._sent :])
        self._sent = len(value.text)
        if new:
            events.append(CallArguments(self._count, new))
        if value.done:
            events.append(CallEnd(self._count))
            self._count += 1
            self._value = None
        return value.done and bool(self._buffer)


MISTRAL = ToolFamily("mistral", MistralParser, keep_special=(_BEGIN, _ARGS), make_id=mistral_id)
