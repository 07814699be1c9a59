"""Text that arrives in pieces and is taken in steps."""

from __future__ import annotations

from abc import ABC, abstractmethod

from gateway.parsing.events import Event


class Stepped(ABC):
    """Keeps unread text in `_buffer`."""

    def __init__(self) -> None:
        self._buffer = ""

    def feed(self, text: str) -> list[Event]:
        """What the next piece of text brings; a piece may end anywhere."""
        self._buffer += text
        events: list[Event] = []
        while self._step(events):
            pass
        return events

    @abstractmethod
    def _step(self, events: list[Event]) -> bool:
        """Take what can be taken from the buffer, add what it means; False when more text is needed."""
