"""What a family of tool-calling models looks like to the gateway."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gateway.parsing.events import Content, Event
from gateway.parsing.markers import first_of, sayable
from gateway.parsing.stepped import Stepped


class ToolParser(ABC):
    """Reads one answer. Calls are numbered from 0 in order of appearance.

    satisfied: whatever may follow is not worth waiting for; the answer can be ended here.
    cut: set before `finish` if the text did not end by itself: what may be the beginning of a call then is no content.
    """

    satisfied = False
    cut = False

    @abstractmethod
    def feed(self, text: str) -> list[Event]:
        """What the next piece of text brings; a piece may end anywhere."""

    @abstractmethod
    def finish(self) -> list[Event]:
        """What was held back, at the end of the text. A call that is not whole gets no CallEnd."""


class Reader(Protocol):
    """Reads one thing that stands in the text: a call's object, or its arguments."""

    def feed(self, text: str) -> tuple[int, list[Event]]:
        """(characters consumed, what they brought)."""
        ...


class SteppedParser(Stepped, ToolParser):
    """A parser that takes its text in steps."""

    def _let_read(self, reader: Reader, events: list[Event]) -> str:
        """Let `reader` take from the buffer what is its own; returns the text it took."""
        consumed, found = reader.feed(self._buffer)
        events += found
        taken, self._buffer = self._buffer[:consumed], self._buffer[consumed:]
        return taken

    def _text_until(self, begins: Sequence[str], events: list[Event], strays: Sequence[str] = ()) -> str | None:
        """Pass text on up to the first of `begins`, which is taken off and returned; None when more text is needed.

        White space before a marker is no content, nor is one of `strays`, markers that have no business in text.
        """
        markers = (*begins, *strays)
        while True:
            found = first_of(self._buffer, markers)
            at, marker = found if found is not None else (sayable(self._buffer, markers), "")
            head = self._buffer[:at].rstrip() if marker else self._buffer[:at]
            if head:
                events.append(Content(head))
            self._buffer = self._buffer[at + len(marker) :]
            if not marker or marker in begins:
                return marker or None


def openai_id() -> str:
    """An id for a call, in the OpenAI shape."""
    return "call_" + secrets.token_hex(12)


@dataclass(frozen=True, slots=True)
class ToolFamily:
    """keep_special: special tokens the parser must see in the text.

    structural_tag: the grammar of an answer in which calls of strict functions have the declared arguments, others any.
    Raises InvalidRequest for a function it cannot describe.
    """

    name: str
    make: Callable[[], ToolParser]
    structural_tag: Callable[[Sequence[Mapping[str, Any]]], str]
    keep_special: tuple[str, ...] = ()
    make_id: Callable[[], str] = openai_id
