"""A regex as a nondeterministic automaton over characters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from services.common.text.char_set import CharSet
from services.common.text.regex_syntax import Assertion, Choice, Node, Repeat, Sequence, UnsupportedPattern

MAX_NODES = 1000


@dataclass(frozen=True, slots=True)
class Read:
    """Go to `then` with a character of the set."""

    characters: CharSet
    then: int


@dataclass(frozen=True, slots=True)
class Require:
    """Go to `then` where the assertion holds, reading nothing."""

    assertion: Assertion
    then: int


@dataclass(frozen=True, slots=True)
class Fork:
    """Go to all of these, reading nothing."""

    ways: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """Nodes by number. Node 0 is the match; `start` is where a match begins."""

    nodes: tuple[Read | Require | Fork | None, ...]
    start: int


def compile_program(tree: Node, max_nodes: int = MAX_NODES) -> Program:
    """The automaton of a tree. Raises UnsupportedPattern if it would have more nodes than allowed."""
    builder = _Builder(max_nodes)
    start = builder.build(tree, 0)
    return Program(tuple(builder.nodes), start)


class _Builder:
    """Builds backwards: every part is told which node follows it."""

    def __init__(self, max_nodes: int) -> None:
        self._max_nodes = max_nodes
        self.nodes: list[Read | Require | Fork | None] = [None]

    def build(self, tree: Node, then: int) -> int:
        match tree:
            case CharSet():
                return self._add(Read(tree, then))
            case Assertion():
                return self._add(Require(tree, then))
            case Sequence(parts):
                for part in reversed(parts):
                    then = self.build(part, then)
                return then
            case Choice(parts):
                return self._fork(self.build(part, then) for part in parts)
            case Repeat():
                return self._repeat(tree, then)

    def _repeat(self, tree: Repeat, then: int) -> int:
        if tree.high is None:
            loop = self._add(Fork(()))
            self.nodes[loop] = Fork((self.build(tree.body, loop), then))
            then = loop
        else:
            end = then
            for _ in range(tree.high - tree.low):
                then = self._fork((self.build(tree.body, then), end))
        for _ in range(tree.low):
            then = self.build(tree.body, then)
        return then

    def _fork(self, ways: Iterable[int]) -> int:
        return self._add(Fork(tuple(ways)))

    def _add(self, node: Read | Require | Fork) -> int:
        if len(self.nodes) >= self._max_nodes:
            raise UnsupportedPattern(f"too large (more than {MAX_NODES} states for a request); use smaller repetition counts")
        self.nodes.append(node)
        return len(self.nodes) - 1
