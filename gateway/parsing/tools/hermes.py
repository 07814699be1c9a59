"""Hermes and Qwen: `<tool_call>{"name": …, "arguments": …}</tool_call>`, text before, between and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.parsing.events import Content, Event
from gateway.parsing.json_call import JsonCall
from gateway.parsing.markers import held_tail, released
from gateway.parsing.tools import tags
from gateway.parsing.tools.interface import SteppedParser, ToolFamily

_BEGIN, _END = "<tool_call>", "</tool_call>"


class HermesParser(SteppedParser):
    """States: in text, in a call's object, between the object and its end tag. White space around calls is dropped."""

    def __init__(self) -> None:
        super().__init__()
        self._call: JsonCall | None = None
        self._closing = False
        self._count = 0

    def finish(self) -> list[Event]:
        """See ToolParser."""
        rest, self._buffer = released(self._buffer, (_BEGIN, _END), likely=self.cut or self._count > 0), ""
        if self._call is not None or self._closing or (self._count and not rest.strip()):
            return []
        return [Content(rest)] if rest else []

    def _step(self, events: list[Event]) -> bool:
        if self._closing:
            return self._skip_to_end()
        if self._call is not None:
            return self._in_call(self._call, events)
        return self._in_text(events)

    def _in_text(self, events: list[Event]) -> bool:
        if self._text_until((_BEGIN,), events, (_END,)) is None:
            return False
        self._call = JsonCall(self._count)
        return True

    def _in_call(self, call: JsonCall, events: list[Event]) -> bool:
        self._let_read(call, events)
        if not call.done and not call.broken:
            return False
        self._count += call.begun
        self._call, self._closing = None, True
        return True

    def _skip_to_end(self) -> bool:
        at = self._buffer.find(_END)
        if at < 0:
            nested = self._buffer.find(_BEGIN)
            if nested >= 0:
                self._buffer = self._buffer[nested:]
                self._closing = False
                return True
            self._buffer = self._buffer[len(self._buffer) - held_tail(self._buffer, (_END, _BEGIN)) :]
            return False
        self._buffer = self._buffer[at + len(_END) :].lstrip()
        self._closing = False
        return True


def _structural_tag(functions: Sequence[Mapping[str, Any]]) -> str:
    calls = [tags.call(f'{_BEGIN}\n{{"name": "{f["name"]}", "arguments": ', tags.schema_of(f), f"}}\n{_END}") for f in functions]
    return tags.written(tags.in_text([_BEGIN], calls))


HERMES = ToolFamily("hermes", HermesParser, _structural_tag, keep_special=(_BEGIN, _END))
