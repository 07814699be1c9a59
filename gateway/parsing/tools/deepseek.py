"""DeepSeek V3, R1 and V3.1: calls between special tokens, arguments bare or in a json code fence.

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\\n```json\\n{…}\\n```<｜tool▁call▁end｜>…<｜tool▁calls▁end｜>
    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜>…
"""

from __future__ import annotations

from gateway.parsing.events import CallArguments, CallBegin, CallEnd, Content, Event
from gateway.parsing.json_call import Value
from gateway.parsing.markers import first_of, released, sayable
from gateway.parsing.tools.interface import SteppedParser, ToolFamily

_CALLS, _CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_CALL, _SEP, _CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"


class DeepSeekParser(SteppedParser):
    """Nothing between the outer markers is content."""

    def __init__(self) -> None:
        super().__init__()
        self._in_calls = False
        self._value: Value | None = None
        self._sent = 0
        self._count = 0

    def finish(self) -> list[Event]:
        """See ToolParser."""
        rest, self._buffer = released(self._buffer, (_CALLS, _CALL)), ""
        return [Content(rest)] if rest and not self._in_calls else []

    def _step(self, events: list[Event]) -> bool:
        if not self._in_calls:
            return self._in_text(events)
        if self._value is not None:
            return self._in_arguments(self._value, events)
        return self._header(events)

    def _in_text(self, events: list[Event]) -> bool:
        found = first_of(self._buffer, (_CALLS, _CALL))
        if found is None:
            cut = sayable(self._buffer, (_CALLS, _CALL))
            head, self._buffer = self._buffer[:cut], self._buffer[cut:]
        else:
            at, marker = found
            head = self._buffer[:at].rstrip()
            self._buffer = self._buffer[at + (len(marker) if marker == _CALLS else 0) :]
            self._in_calls = True
        if head:
            events.append(Content(head))
        return found is not None

    def _header(self, events: list[Event]) -> bool:
        """From a call's begin to the first character of its arguments."""
        begin = first_of(self._buffer, (_CALL, _CALLS_END))
        if begin is None:
            return False
        if begin[1] == _CALLS_END:
            self._buffer = self._buffer[begin[0] + len(_CALLS_END) :]
            self._in_calls = False
            return True
        text = self._buffer[begin[0] + len(_CALL) :]
        sep = text.find(_SEP)
        opening = text.find("{", sep) if sep >= 0 else -1
        closing = first_of(text, (_CALL_END,))
        if opening < 0 or (closing is not None and closing[0] < opening):
            if closing is not None:
                self._buffer = text[closing[0] :]
            return closing is not None
        kind, rest = text[:sep].strip(), text[sep + len(_SEP) : opening]
        name = rest.split("\n", 1)[0].strip() if kind == "function" else kind
        events.append(CallBegin(self._count, name))
        self._value, self._sent = Value(), 0
        self._buffer = text[opening:]
        return True

    def _in_arguments(self, value: Value, events: list[Event]) -> bool:
        at = 0
        while at < len(self._buffer) and not value.done:
            value.feed(self._buffer[at])
            at += 1
        self._buffer = self._buffer[at:]
        new = "".join(value.text[self._sent :])
        self._sent = len(value.text)
        if new:
            events.append(CallArguments(self._count, new))
        if not value.done:
            return False
        events.append(CallEnd(self._count))
        self._count += 1
        self._value = None
        return True


DEEPSEEK = ToolFamily("deepseek", DeepSeekParser, keep_special=(_CALLS, _CALLS_END, _CALL, _SEP, _CALL_END))
