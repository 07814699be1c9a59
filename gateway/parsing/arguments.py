"""The arguments of one call, where they stand in the text as one JSON value."""

from __future__ import annotations

from gateway.parsing.events import CallArguments, CallEnd, Event
from gateway.parsing.json_call import Value


class Arguments:
    """Passes the value on as it comes. After `done` the text that was not consumed belongs to what follows."""

    def __init__(self, index: int) -> None:
        self.index = index
        self._value = Value()
        self._sent = 0

    @property
    def done(self) -> bool:
        """Has the value ended?"""
        return self._value.done

    def feed(self, text: str) -> tuple[int, list[Event]]:
        """(characters consumed, what they brought)."""
        at = 0
        while at < len(text) and not self._value.done and self._value.feed(text[at]):
            at += 1
        new = "".join(self._value.text[self._sent :])
        self._sent = len(self._value.text)
        events: list[Event] = [CallArguments(self.index, new)] if new else []
        if self._value.done:
            events.append(CallEnd(self.index))
        return at, events
