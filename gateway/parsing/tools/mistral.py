"""Mistral: `[TOOL_CALLS]` and then an array of objects, or `name[ARGS]{…}` for each call."""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.parsing.arguments import Arguments
from gateway.parsing.events import CallBegin, Content, Event
from gateway.parsing.json_call import JsonCall
from gateway.parsing.markers import released
from gateway.parsing.tools import tags
from gateway.parsing.tools.interface import SteppedParser, ToolFamily

_BEGIN, _ARGS = "[TOOL_CALLS]", "[ARGS]"
_NAME = re.compile(r"[\w.\-]+")
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
        self._arguments: Arguments | None = None
        self._count = 0

    def finish(self) -> list[Event]:
        """See ToolParser."""
        rest, self._buffer = released(self._buffer, (_BEGIN, _ARGS), likely=self.cut), ""
        return [Content(rest)] if rest and not self._in_calls else []

    def _step(self, events: list[Event]) -> bool:
        if not self._in_calls:
            return self._in_text(events)
        if self._call is not None:
            return self._in_object(self._call, events)
        if self._arguments is not None:
            return self._in_arguments(self._arguments, events)
        return self._next_call(events)

    def _in_text(self, events: list[Event]) -> bool:
        self._in_calls = self._text_until((_BEGIN,), events, (_ARGS,)) is not None
        return self._in_calls

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
        self._buffer = text
        head, marker, rest = text.partition(_ARGS)
        if not marker:
            return False
        self._buffer = rest
        name = head.rpartition(_BEGIN)[2].strip()
        if _NAME.fullmatch(name):
            events.append(CallBegin(self._count, name))
            self._arguments = Arguments(self._count)
        return True

    def _array(self, text: str) -> bool:
        """A lone `[` right after the marker opens the array; elsewhere it may begin the next marker."""
        if self._count:
            return False
        self._buffer = text[1:]
        return bool(self._buffer)

    def _in_object(self, call: JsonCall, events: list[Event]) -> bool:
        self._let_read(call, events)
        if not call.done and not call.broken:
            return False
        self._count += call.begun
        self._call = None
        if call.broken:
            self._buffer = ""
        return call.done

    def _in_arguments(self, arguments: Arguments, events: list[Event]) -> bool:
        self._let_read(arguments, events)
        if not arguments.done:
            return False
        self._count += 1
        self._arguments = None
        return bool(self._buffer)


def _structural_tag(functions: Sequence[Mapping[str, Any]]) -> str:
    """After the marker an array of objects, or a name and its arguments: which one a model writes depends on its version."""
    objects = tags.several([tags.call(f'{{"name": "{f["name"]}", "arguments": ', tags.schema_of(f), "}") for f in functions], ", ")
    arrays = [tags.tag(_BEGIN + opening, objects, "]") for opening in ("[", " [")]
    named = [tags.call(f"{_BEGIN}{f['name']}{_ARGS}", tags.schema_of(f), "") for f in functions]
    return tags.written(tags.sequence([tags.in_text([_BEGIN], [*arrays, *named], last=True), tags.star(tags.one_of(named))]))


MISTRAL = ToolFamily("mistral", MistralParser, _structural_tag, keep_special=(_BEGIN, _ARGS), make_id=mistral_id)
