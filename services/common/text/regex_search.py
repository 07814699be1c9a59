"""Where a regex may be matching in text that arrives piece by piece.

An automaton state says, for every place where a match may have begun, how far it has come. Places are kept in order,
and progress that an earlier place shares is not kept for a later one, so a state is never larger than the program.
States and the steps between them are computed once and remembered: a character costs one dictionary look-up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from services.common.text.regex_program import Fork, Program, Read, Require
from services.common.text.regex_syntax import Assertion

_MAX_STATES = 2000
_MAX_EDGES = 500
INVALID = ""
"""Stands for bytes that are no character: nothing matches them."""


class Side(IntEnum):
    """What is on one side of a place, as far as assertions care."""

    NOTHING = 0
    NEWLINE = 1
    WORD = 2
    OTHER = 3


def side_of(character: str) -> Side:
    """The kind of a character; `INVALID` is OTHER."""
    if character == "\n":
        return Side.NEWLINE
    return Side.WORD if character == "_" or (character.isascii() and character.isalnum()) else Side.OTHER


def holds(assertion: Assertion, before: Side, after: Side) -> bool:
    """Whether an assertion holds between two sides."""
    match assertion:
        case Assertion.TEXT_START:
            return before is Side.NOTHING
        case Assertion.TEXT_END:
            return after is Side.NOTHING
        case Assertion.LINE_START:
            return before in (Side.NOTHING, Side.NEWLINE)
        case Assertion.LINE_END:
            return after in (Side.NOTHING, Side.NEWLINE)
        case Assertion.WORD_BOUNDARY:
            return (before is Side.WORD) != (after is Side.WORD)
        case Assertion.NOT_WORD_BOUNDARY:
            return (before is Side.WORD) == (after is Side.WORD)


@dataclass(frozen=True, slots=True)
class Edge:
    """One step. `kept[i]` is the index of the old place that new place i was; one past the last is the step's own place.

    `matched` is the index of the first place with a match that ended before the character, None if there is none.
    """

    state: State
    kept: tuple[int, ...]
    matched: int | None
    same_places: bool


@dataclass(eq=False, slots=True)
class State:
    """`places[i]` are the program nodes that the match begun at place i stands before.

    `matched_at_end` is the index of the first place with a match if the text ends here, `matched_before_other` if the
    bytes of an unfinished character follow.
    """

    before: Side
    places: tuple[tuple[int, ...], ...]
    edges: dict[str, Edge] = field(default_factory=dict)
    matched_at_end: int | None = None
    matched_before_other: int | None = None


class RegexSearch:
    """All states of one program; shared by every text it is searched in."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._states: dict[tuple[Side, tuple[tuple[int, ...], ...]], State] = {}
        self.initial = self._state(Side.NOTHING, ())

    @property
    def size(self) -> int:
        """Nodes of the program; the cost of a step that is not yet known is linear in it."""
        return len(self._program.nodes)

    def step(self, state: State, character: str) -> Edge:
        """The step from `state` with one character, or with INVALID."""
        edge = state.edges.get(character)
        if edge is None:
            if len(state.edges) >= _MAX_EDGES:
                state.edges.clear()
            edge = state.edges[character] = self._compute(state, character)
        return edge

    def _state(self, before: Side, places: tuple[tuple[int, ...], ...]) -> State:
        state = self._states.get((before, places))
        if state is None:
            if len(self._states) >= _MAX_STATES:
                self._states.clear()
            state = self._states[before, places] = State(before, places)
            _, state.matched_at_end = self._closures(state, Side.NOTHING)
            _, state.matched_before_other = self._closures(state, Side.OTHER)
        return state

    def _compute(self, state: State, character: str) -> Edge:
        after = side_of(character)
        closures, matched = self._closures(state, after)
        code_point = ord(character) if character else -1
        taken: set[int] = set()
        places: list[tuple[int, ...]] = []
        kept: list[int] = []
        for index, reads in enumerate(closures):
            onward = sorted({node.then for node in reads if code_point in node.characters and node.then not in taken})
            if onward:
                taken.update(onward)
                places.append(tuple(onward))
                kept.append(index)
        same = kept == list(range(len(state.places)))
        return Edge(self._state(after, tuple(places)), tuple(kept), matched, same)

    def _closures(self, state: State, after: Side) -> tuple[list[list[Read]], int | None]:
        """Per place, and for a match that begins here, the nodes that read next; and the first place with a match."""
        seen: set[int] = set()
        matched: int | None = None
        closures: list[list[Read]] = []
        for index, nodes in enumerate((*state.places, (self._program.start,))):
            closures.append(self._closure(nodes, state.before, after, seen))
            if matched is None and 0 in seen:
                matched = index
        return closures, matched

    def _closure(self, nodes: Iterable[int], before: Side, after: Side, seen: set[int]) -> list[Read]:
        reads: list[Read] = []
        stack = list(nodes)
        while stack:
            number = stack.pop()
            if number in seen:
                continue
            seen.add(number)
            match self._program.nodes[number]:
                case Read() as node:
                    reads.append(node)
                case Fork(ways):
                    stack.extend(ways)
                case Require(assertion, then) if holds(assertion, before, after):
                    stack.append(then)
        return reads
