"""How the text of a chat answer is taken apart: first the thought, then the calls, the rest is content."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from gateway.flight.spec import ThoughtAt
from gateway.parsing.events import CallArguments, CallBegin, CallEnd, Content, Event, Reasoning
from gateway.parsing.forced import ArrayParser, NamedParser
from gateway.parsing.reasoning.splitter import ReasoningFamily, ReasoningSplitter
from gateway.parsing.tools.interface import ToolFamily, ToolParser, openai_id


@dataclass(frozen=True, slots=True)
class ParsePlan:
    """One request's parsers. forced: "", "required" or "named".

    separate_reasoning: False leaves thoughts in the content. stream_reasoning: False brings a thought when it has ended.
    include_reasoning: False leaves thoughts out altogether.
    """

    reasoning: ReasoningFamily | None = None
    separate_reasoning: bool = True
    stream_reasoning: bool = True
    include_reasoning: bool = True
    tools: ToolFamily | None = None
    forced: str = ""
    forced_name: str = ""
    tool_names: tuple[str, ...] = ()
    parallel: bool = True

    @property
    def plain(self) -> bool:
        """Is all text content?"""
        return self.reasoning is None and self.tools is None and not self.forced

    @property
    def keep_special(self) -> tuple[str, ...]:
        """Special tokens the parsers must see."""
        tags = (self.reasoning.begin, self.reasoning.end) if self.reasoning is not None else ()
        return tags + (self.tools.keep_special if self.tools is not None else ())

    def parser(self) -> AnswerParser:
        """A parser for one choice."""
        return AnswerParser(self)


@dataclass(slots=True)
class Call:
    """One tool call as far as it has come."""

    id: str
    name: str
    arguments: list[str] = field(default_factory=list)
    whole: bool = False


class AnswerParser:
    """Parses one choice and remembers what it found."""

    def __init__(self, plan: ParsePlan) -> None:
        apart = plan.reasoning is not None and (plan.separate_reasoning or not plan.include_reasoning)
        self._splitter = ReasoningSplitter(plan.reasoning) if apart and plan.reasoning is not None else None
        self._begun = False
        self._held_thought: list[str] | None = None if plan.stream_reasoning else []
        self._included = plan.include_reasoning
        self._tools = _tool_parser(plan)
        self._family = plan.tools
        self._parallel = plan.parallel
        self._thought = False
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[Call] = []

    def feed(self, text: str, at: ThoughtAt | None = None) -> list[Event]:
        """What the next piece of text brings. at: where the answer begins, where that is known."""
        self._begin(at)
        events: list[Event] = [Content(text)]
        if self._splitter is not None:
            events = self._splitter.feed(text)
        return self._keep(self._through_tools(events))

    def finish(self, at: ThoughtAt | None = None, *, cut: bool = False) -> list[Event]:
        """What was held back. cut: the text did not end by itself, so that a marker may have broken off."""
        self._begin(at)
        events = self._through_tools(self._splitter.finish(cut=cut) if self._splitter is not None else [])
        if self._tools is not None:
            self._tools.cut = cut
            events += self._tools.finish()
        return self._keep([*events, *self._release_thought()])

    def _begin(self, at: ThoughtAt | None) -> None:
        if not self._begun and at is not None and self._splitter is not None:
            self._splitter.begins(at)
        self._begun = True

    @property
    def satisfied(self) -> bool:
        """Can the answer be ended here?"""
        only_one_and_whole = not self._parallel and bool(self.calls) and self.calls[0].whole
        return only_one_and_whole or (self._tools is not None and self._tools.satisfied)

    @property
    def thought(self) -> bool:
        """Was there a thought at all?"""
        return self._thought

    @property
    def thinking(self) -> bool:
        """Did the text end inside the thought?"""
        return self._splitter is not None and self._splitter.thinking

    @property
    def called(self) -> bool:
        """Is there a whole call, and none that was cut?"""
        return bool(self.calls) and all(call.whole for call in self.calls)

    def _through_tools(self, events: Iterable[Event]) -> list[Event]:
        found: list[Event] = []
        for event in events:
            if not isinstance(event, Reasoning):
                found += self._release_thought()
            if isinstance(event, Content) and self._tools is not None:
                found += self._tools.feed(event.text)
            elif isinstance(event, Reasoning):
                self._thought = True
                if not self._included:
                    continue
                if self._held_thought is None:
                    found.append(event)
                else:
                    self._held_thought.append(event.text)
            else:
                found.append(event)
        return found

    def _release_thought(self) -> list[Event]:
        """A thought that was to come in one piece."""
        if not self._held_thought:
            return []
        text = "".join(self._held_thought)
        self._held_thought.clear()
        return [Reasoning(text)]

    def _keep(self, events: list[Event]) -> list[Event]:
        kept: list[Event] = []
        for event in events:
            if isinstance(event, CallBegin | CallArguments | CallEnd) and event.index > 0 and not self._parallel:
                continue
            kept.append(event)
            if isinstance(event, Content):
                self.content.append(event.text)
            elif isinstance(event, Reasoning):
                self.reasoning.append(event.text)
            elif isinstance(event, CallBegin):
                make_id = self._family.make_id if self._family is not None else openai_id
                self.calls.append(Call(make_id(), event.name))
            elif isinstance(event, CallArguments):
                self.calls[event.index].arguments.append(event.text)
            else:
                self.calls[event.index].whole = True
        return kept


def _tool_parser(plan: ParsePlan) -> ToolParser | None:
    if plan.forced == "named":
        return NamedParser(plan.forced_name)
    if plan.forced:
        return ArrayParser()
    return plan.tools.make() if plan.tools is not None else None
