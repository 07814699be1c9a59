"""Constraints written to hurt: each is refused by name, or can be followed cheaply; the compiler goes on working."""

from __future__ import annotations

import json
import random

import numpy as np
import numpy.typing as npt
import pytest

from services.scheduler.grammar.interface import GrammarKind, InvalidGrammar, TooCostly
from services.scheduler.grammar.probe import RUN_STEPS, RUNS, STEPS, WALKS, too_costly
from tests.unit.grammar.following import NAMES, VOCAB, admits, compiled, matcher, wander

_WORDS = -(-VOCAB // 32)


def _nested(depth: int) -> str:
    return '{"anyOf":[' * depth + '{"type":"integer"}' + "]}" * depth


def _doubling(depth: int) -> str:
    definitions = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(depth)}
    return json.dumps({"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{depth}": {"type": "string", "maxLength": 3}}})


def _tagged(count: int) -> str:
    members = [{"type": "object", "properties": {"k": {"const": f"c{i}"}}, "required": ["k"]} for i in range(count)]
    return json.dumps({"oneOf": members})


REFUSED = [
    (GrammarKind.JSON_SCHEMA, _nested(10_000)),
    (GrammarKind.JSON_SCHEMA, _nested(100)),
    (GrammarKind.JSON_SCHEMA, json.dumps({"enum": [f"x{i:07}" for i in range(500_000)]})),
    (GrammarKind.JSON_SCHEMA, json.dumps({"enum": list(range(30_000))})),
    (GrammarKind.JSON_SCHEMA, _tagged(600)),
    (GrammarKind.JSON_SCHEMA, json.dumps({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}})),
    (GrammarKind.JSON_SCHEMA, json.dumps({"type": "string", "maxLength": 10**9})),
    (GrammarKind.JSON_SCHEMA, json.dumps({"type": "array", "items": {}, "minItems": 10**9})),
    (GrammarKind.JSON_SCHEMA, json.dumps({"type": "string", "pattern": "(a{1,1000}){1,1000}"})),
    (GrammarKind.REGEX, "(a{1,1000}){1,1000}"),
    (GrammarKind.REGEX, "a" * 5000),
    (GrammarKind.REGEX, "(" * 1500 + "a" + ")" * 1500),
    (GrammarKind.EBNF, "root ::= " + "a" * 300_000),
    (GrammarKind.EBNF, 'root ::= root root | "a" | ""'),
    (GrammarKind.EBNF, 'root ::= "<" s ">"\ns ::= s s | t\nt ::= [a-z]?'),
    (GrammarKind.STRUCTURAL_TAG, '{"format":' * 100 + "1" + "}" * 100),
]
BOUNDED = [
    (GrammarKind.JSON_SCHEMA, _nested(60)),
    (GrammarKind.JSON_SCHEMA, _doubling(40)),
    (GrammarKind.JSON_SCHEMA, _tagged(60)),
    (GrammarKind.JSON_SCHEMA, '{"type": "array", "items": {"$ref": "#"}}'),
    (GrammarKind.REGEX, "(a|b)*a(a|b){20}"),
    (GrammarKind.REGEX, "((a|aa|aaa)+b?)+"),
    (GrammarKind.EBNF, 'root ::= root "a" | "a"'),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("kind", "text"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_has_no_bound_is_refused(name: str, kind: GrammarKind, text: str) -> None:
    with pytest.raises(InvalidGrammar) as refused:
        matcher(name, kind, text)
    assert refused.value.field == str(kind)
    assert len(refused.value.message) < 10_000
    assert admits(matcher(name, GrammarKind.REGEX, "[ab]{2}"), "ab")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("kind", "text"), BOUNDED, ids=lambda value: str(value)[:40])
def test_what_only_looks_dangerous_is_followed_or_refused(name: str, kind: GrammarKind, text: str) -> None:
    try:
        grammar = compiled(name, kind, text)
    except TooCostly:
        return
    wander(grammar.matcher(), random.Random(1), most=100)


class _Free:
    """A grammar that allows everything; each mask costs some seconds of the clock."""

    finished = False

    def __init__(self, cost_s: float) -> None:
        self.cost_s = cost_s
        self.now = 0.0
        self.steps = 0

    def accept(self, token_id: int) -> bool:
        self.steps += 1
        return True

    def fill_mask(self, words: npt.NDArray[np.int32]) -> None:
        words[:] = -1
        self.now += self.cost_s


class _Growing(_Free):
    """Costs more with every time the same token comes again, and nothing otherwise."""

    def __init__(self) -> None:
        super().__init__(0.0)
        self._last = -1

    def accept(self, token_id: int) -> bool:
        self.cost_s = self.cost_s + 0.0005 if token_id == self._last else 0.0
        self._last = token_id
        return super().accept(token_id)


def test_a_cost_that_grows_with_repetition_is_found() -> None:
    growing = _Growing()
    assert too_costly(lambda: growing, _WORDS, clock=lambda: growing.now)


def test_a_walk_tells_the_dear_from_the_cheap_and_ends() -> None:
    cheap = _Free(0.001)
    assert not too_costly(lambda: cheap, _WORDS, clock=lambda: cheap.now)
    assert cheap.steps <= WALKS * STEPS + RUNS * RUN_STEPS
    dear = _Free(0.2)
    assert too_costly(lambda: dear, _WORDS, clock=lambda: dear.now)
    assert dear.steps < STEPS
