"""A lenient grammar takes every schema that is right, allows all that the schema allows, and still holds what it can."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.scheduler.grammar.interface import CompiledGrammar, GrammarKind, GrammarSpec, InvalidGrammar
from services.scheduler.grammar.schema.lenient import lenient_form
from services.scheduler.grammar.schema.problem import SchemaProblem
from services.scheduler.grammar.schema.profile import XGRAMMAR
from tests.unit.grammar.following import NAMES, admits, backend, compiled
from tests.unit.grammar.keyword_cases import CASES, Case


def lenient(name: str, schema: str, kind: GrammarKind = GrammarKind.JSON_SCHEMA) -> CompiledGrammar:
    made = backend(name)
    return made.compile(made.check(GrammarSpec(kind, schema, lenient=True)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", [c for c in CASES if c.good], ids=lambda case: f"{case.name}-{json.dumps(case.schema)[:60]}")
def test_what_the_schema_allows_is_allowed(name: str, case: Case) -> None:
    grammar = lenient(name, json.dumps(case.schema))
    assert [text for text in case.good if not admits(grammar.matcher(), text)] == []


HELD: list[tuple[dict[str, Any], str, str]] = [
    ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, "[1, 1]", '["a"]'),
    ({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "not": {"required": ["b"]}}, '{"a": 1}', '{"a": "x"}'),
    (
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "anyOf": [{"required": ["b"]}, {"required": ["c"]}]},
        '{"a": "x", "b": 1}',
        '{"a": 1}',
    ),
    ({"allOf": [{"type": "object", "required": ["a"]}, {"type": "object", "required": ["b"]}]}, '{"b": 1}', "[]"),
    ({"oneOf": [{"type": "integer", "minimum": 5}, {"type": "integer", "maximum": 7}]}, "6", '"x"'),
    ({"type": "string", "format": "date", "pattern": "^2"}, '"2x"', '"1"'),
    ({"type": "object", "patternProperties": {"^a": {"type": "integer"}, "b$": {"type": "integer"}}}, '{"ab": "x"}', "[]"),
    ({"type": "array", "items": {"if": {"type": "integer"}, "then": {"minimum": 3}}, "maxItems": 2}, "[1]", "[1, 2, 3]"),
]


@pytest.mark.parametrize("schema, wider, never", HELD, ids=lambda value: json.dumps(value)[:50])
def test_what_can_be_held_is_held(schema: dict[str, Any], wider: str, never: str) -> None:
    grammar = lenient("xgrammar", json.dumps(schema))
    assert admits(grammar.matcher(), wider)
    assert not admits(grammar.matcher(), never)


@pytest.mark.parametrize("schema", ['{"type": "strng"}', '{"minLenght": 3}', '{"minimum": 3, "maximum": 2, "type": "integer"}', "[]", "{"])
def test_a_schema_that_is_wrong_stays_wrong(schema: str) -> None:
    with pytest.raises(InvalidGrammar):
        lenient("xgrammar", schema)


def test_tags_are_lenient_too() -> None:
    schema = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    tag = {
        "type": "structural_tag",
        "format": {"type": "tag", "begin": "<", "content": {"type": "json_schema", "json_schema": schema}, "end": ">"},
    }
    with pytest.raises(InvalidGrammar):
        compiled("xgrammar", GrammarKind.STRUCTURAL_TAG, json.dumps(tag))
    grammar = lenient("xgrammar", json.dumps(tag), GrammarKind.STRUCTURAL_TAG)
    assert admits(grammar.matcher(), "<[1, 1]>")
    assert not admits(grammar.matcher(), '<["x"]>')


def test_the_work_is_bounded() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
    for _ in range(60):
        members = [{"required": [f"p{place}"]} for place in range(40)]
        schema = {
            "type": "object",
            "properties": {"a": schema, "b": {"type": "string", "format": "date", "maxLength": 3}},
            "anyOf": members,
        }
    assert len(lenient_form(json.dumps(schema), XGRAMMAR)) > 1000
    deep: dict[str, Any] = {"type": "object", "properties": {str(place): {"type": "integer"} for place in range(400)}}
    for _ in range(50):
        deep = {"type": "object", "properties": {"a": deep}, "propertyNames": {"maxLength": 9}}
    with pytest.raises(SchemaProblem, match="too much"):
        lenient_form(json.dumps(deep), XGRAMMAR)
