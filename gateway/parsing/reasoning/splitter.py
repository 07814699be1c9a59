"""Takes a thought apart from the answer that follows it."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.flight.spec import ThoughtAt
from gateway.parsing.events import Content, Event, Reasoning
from gateway.parsing.markers import held_tail
from gateway.parsing.stepped import Stepped


@dataclass(frozen=True, slots=True)
class ReasoningFamily:
    """Tags around a thought. starts_inside: the answer begins in the thought, without the opening tag."""

    name: str
    begin: str
    end: str
    starts_inside: bool


class ReasoningSplitter(Stepped):
    """Reads one answer. White space around the tags belongs to neither part."""

    def __init__(self, family: ReasoningFamily) -> None:
        super().__init__()
        self._family = family
        self._inside = family.starts_inside
        self._at = "start"

    def begins(self, at: ThoughtAt) -> None:
        """Before the first text: where the answer begins, if that is known better than by its family."""
        if at == "after":
            self._at = "answer"
        self._inside = at == "inside"

    @property
    def thinking(self) -> bool:
        """Is the thought still going on?"""
        return self._at in ("opening", "inside") or (self._at == "start" and self._inside)

    def finish(self, *, cut: bool = False) -> list[Event]:
        """What was held back, at the end of the text; if that was `cut`, without a tag that broke off."""
        rest, self._buffer = self._buffer, ""
        if cut:
            rest = rest[: len(rest) - held_tail(rest, (self._family.end if self.thinking else self._family.begin,))]
        if not rest or self._at == "gap":
            return []
        if self.thinking:
            return [Reasoning(rest)] if rest.strip() else []
        return [Content(rest)]

    def _step(self, events: list[Event]) -> bool:
        if self._at == "start":
            return self._start()
        if self._at == "opening":
            self._buffer = self._buffer.lstrip()
            if not self._buffer:
                return False
            self._at = "inside"
        if self._at == "inside":
            return self._thought(events)
        if self._at == "gap":
            self._buffer = self._buffer.lstrip()
            if not self._buffer:
                return False
            self._at = "answer"
        if self._buffer:
            events.append(Content(self._buffer))
            self._buffer = ""
        return False

    def _start(self) -> bool:
        begin = self._family.begin
        text = self._buffer.lstrip()
        if text.startswith(begin):
            self._buffer = text[len(begin) :]
            self._at = "opening"
            return True
        if begin.startswith(text):
            return False
        if self._inside:
            self._buffer = text
        self._at = "opening" if self._inside else "answer"
        return True

    def _thought(self, events: list[Event]) -> bool:
        end = self._family.end
        at = self._buffer.find(end)
        if at >= 0:
            thought = self._buffer[:at].rstrip()
            self._buffer = self._buffer[at + len(end) :]
            self._at = "gap"
        else:
            keep = held_tail(self._buffer, (end,))
            thought = self._buffer[: len(self._buffer) - keep].rstrip()
            self._buffer = self._buffer[len(thought) :]
        if thought:
            events.append(Reasoning(thought))
        return at >= 0
