"""Llama 3 JSON: an answer that is one object, or several with `;` between, after an optional `<|python_tag|>`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.parsing.events import Content, Event
from gateway.parsing.json_call import JsonCall
from gateway.parsing.markers import released
from gateway.parsing.tools import tags
from gateway.parsing.tools.interface import SteppedParser, ToolFamily

_TAG = "<|python_tag|>"


class Llama3Parser(SteppedParser):
    """An answer that starts with `{` may be a call: it is held until its name shows, or shows that it is text."""

    def __init__(self) -> None:
        super().__init__()
        self._call: JsonCall | None = None
        self._raw = ""
        self._count = 0
        self._text = False
        self._tagged = False

    def finish(self) -> list[Event]:
        """See ToolParser."""
        rest, self._buffer = released(self._buffer, (_TAG,), likely=self.cut), ""
        call = self._call
        if self._tagged or self._count or (call is not None and (call.named or (self.cut and call.likely))):
            return []
        if call is not None:
            rest = self._raw + rest
        return [Content(rest)] if rest else []

    def _step(self, events: list[Event]) -> bool:
        if self._call is not None:
            return self._in_call(self._call, events)
        if self._text:
            return self._in_text(events)
        stripped = self._buffer.lstrip(" \t\r\n;" if self._count else " \t\r\n")
        if not stripped:
            return False
        if stripped.startswith("{"):
            self._buffer, self._raw = stripped, ""
            self._call = JsonCall(self._count)
            return True
        if _TAG.startswith(stripped[: len(_TAG)]):
            if len(stripped) < len(_TAG):
                return False
            self._buffer = stripped[len(_TAG) :]
            self._tagged = True
            return True
        if self._count:
            self._buffer = ""
            return False
        self._text = True
        return True

    def _in_text(self, events: list[Event]) -> bool:
        """After leading text only the tag can begin a call."""
        if self._text_until((_TAG,), events) is None:
            return False
        self._text, self._tagged = False, True
        return True

    def _in_call(self, call: JsonCall, events: list[Event]) -> bool:
        self._raw += self._let_read(call, events)
        if call.broken:
            self._call = None
            if call.begun or self._count or self._tagged:
                self._count += call.begun
                self._buffer = ""
            else:
                self._buffer = self._raw + self._buffer
                self._text = True
                return True
            return False
        if call.done:
            self._count += 1
            self._call = None
            return True
        return False


def _structural_tag(functions: Sequence[Mapping[str, Any]]) -> str:
    """Calls and nothing else, or text, which does not begin with a brace, and calls after the tag."""

    def calls(begin: str) -> list[tags.Format]:
        return [tags.call(f'{begin}{{"name": "{f["name"]}", "parameters": ', tags.schema_of(f), "}") for f in functions]

    more = tags.star(tags.sequence([tags.const("; "), tags.one_of(calls(""))]))
    bare = tags.sequence([tags.one_of([*calls(""), *calls(_TAG)]), more])
    text = tags.sequence([tags.regex(r"[^{\s<]|<+[^|<]"), tags.in_text([_TAG], calls(_TAG), last=True), more])
    return tags.written(tags.one_of([bare, text]))


LLAMA3 = ToolFamily("llama3", Llama3Parser, _structural_tag, keep_special=(_TAG,))
