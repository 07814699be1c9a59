"""DeepSeek V3, R1 and V3.1: calls between special tokens, arguments bare or in a json code fence.

<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\\n```json\\n{…}\\n```<｜tool▁call▁end｜>…<｜tool▁calls▁end｜>
<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜>…
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.parsing.arguments import Arguments
from gateway.parsing.events import CallBegin, Content, Event
from gateway.parsing.markers import first_of, released
from gateway.parsing.tools import tags
from gateway.parsing.tools.interface import SteppedParser, ToolFamily

_CALLS, _CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_CALL, _SEP, _CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_INNER = (_CALLS_END, _SEP, _CALL_END)


class DeepSeekParser(SteppedParser):
    """Nothing between the outer markers is content."""

    def __init__(self) -> None:
        super().__init__()
        self._in_calls = False
        self._arguments: Arguments | None = None
        self._count = 0

    def finish(self) -> list[Event]:
        """See ToolParser."""
        rest, self._buffer = released(self._buffer, (_CALLS, _CALL, *_INNER), likely=self.cut), ""
        return [Content(rest)] if rest and not self._in_calls else []

    def _step(self, events: list[Event]) -> bool:
        if not self._in_calls:
            return self._in_text(events)
        if self._arguments is not None:
            return self._in_arguments(self._arguments, events)
        return self._header(events)

    def _in_text(self, events: list[Event]) -> bool:
        marker = self._text_until((_CALLS, _CALL), events, _INNER)
        if marker == _CALL:
            self._buffer = _CALL + self._buffer
        self._in_calls = marker is not None
        return self._in_calls

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
        self._arguments = Arguments(self._count)
        self._buffer = text[opening:]
        return True

    def _in_arguments(self, arguments: Arguments, events: list[Event]) -> bool:
        self._let_read(arguments, events)
        if not arguments.done:
            return False
        self._count += 1
        self._arguments = None
        return True


def _structural_tag(functions: Sequence[Mapping[str, Any]]) -> str:
    """Calls with a fence around their arguments or without: which ones a model writes depends on its version."""
    fenced = [tags.call(f"{_CALL}function{_SEP}{f['name']}\n```json\n", tags.schema_of(f), f"\n```{_CALL_END}") for f in functions]
    bare = [tags.call(f"{_CALL}{f['name']}{_SEP}", tags.schema_of(f), _CALL_END) for f in functions]
    blocks = [tags.tag(_CALLS, tags.one_of([tags.several(fenced, "\n"), tags.several(bare, "")]), _CALLS_END)]
    return tags.written(tags.in_text([_CALLS, _CALL], [*blocks, *fenced, *bare]))


DEEPSEEK = ToolFamily("deepseek", DeepSeekParser, _structural_tag, keep_special=(_CALLS, _CALL, *_INNER))
