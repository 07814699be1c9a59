"""Answers are checked against all of a schema, in bounded time, or nobody says that they were."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gateway.checking.checker import TOO_LONG, SchemaChecker
from gateway.checking.dialect import NEVER_CHECKED, dialects
from gateway.checking.formats import checks
from gateway.checking.schema import CheckedSchema, Uncheckable

DOCUMENT = Path(__file__).parents[3] / "docs" / "json-schema.md"
CASES: list[tuple[Any, list[Any], list[Any]]] = [
    ({"type": "array", "uniqueItems": True}, [[1, 2], [True, 1]], [[1, 1], 1]),
    ({"contains": {"type": "integer"}, "minContains": 2, "maxContains": 3, "type": "array"}, [[1, 2]], [[1], [1, 2, 3, 4]]),
    ({"not": {"required": ["a"]}}, [{}], [{"a": 1}, 1]),
    ({"if": {"type": "integer"}, "then": {"minimum": 3}, "else": {"type": "string"}}, [3, "x"], [2, None]),
    ({"oneOf": [{"minimum": 3}, {"maximum": 5}]}, [1, 9], [4]),
    ({"dependentRequired": {"a": ["b"]}}, [{"b": 1}, {"a": 1, "b": 1}], [{"a": 1}]),
    ({"dependentSchemas": {"a": {"required": ["b"]}}}, [{}], [{"a": 1}]),
    ({"dependencies": {"a": ["b"], "c": {"required": ["d"]}}}, [{"b": 1}], [{"a": 1}, {"c": 1}]),
    ({"items": [{"type": "integer"}], "additionalItems": False}, [[1]], [["x"], [1, 2]]),
    (
        {"patternProperties": {"^a": {"type": "integer"}, "z$": {"type": "integer"}}, "additionalProperties": False},
        [{"az": 1}],
        [{"az": "x"}, {"b": 1}],
    ),
    (
        {"propertyNames": {"pattern": "^[a-z]+$"}, "minProperties": 1, "maxProperties": 2},
        [{"a": 1}],
        [{}, {"A": 1}, {"a": 1, "b": 1, "c": 1}],
    ),
    ({"properties": {"a": {}}, "allOf": [{"properties": {"b": {}}}], "unevaluatedProperties": False}, [{"a": 1, "b": 1}], [{"c": 1}]),
    (
        {"$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"},
        [{"n": {"n": {}}}],
        [{"n": {"n": 1}}],
    ),
    ({"multipleOf": 0.5, "minimum": 1}, [1.5], [1.2, 0.5]),
    ({"type": "string", "format": "date", "pattern": "^2"}, ["2024-02-29"], ["2023-02-29", "1999-01-01", "2"]),
    ({"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {"const": 1}}, "$ref": "#/definitions/a"}, [1], [2]),
    (True, [1], []),
    (False, [], [1]),
]


@pytest.mark.parametrize("schema, good, bad", CASES, ids=lambda value: json.dumps(value)[:50])
def test_every_keyword(schema: Any, good: list[Any], bad: list[Any]) -> None:
    checked = CheckedSchema(json.dumps(schema))
    assert [value for value in good if checked.verdict(json.dumps(value)) != {"valid": True}] == []
    assert [value for value in bad if checked.verdict(json.dumps(value))["valid"] is not False] == []


def test_the_library_knows_no_keyword_that_is_not_tried() -> None:
    tried = {key for schema, _, _ in CASES for key in json.dumps(schema).split('"')}
    plain = {"$dynamicRef", "anyOf", "enum", "exclusiveMaximum", "exclusiveMinimum", "maxItems", "maxLength", "minItems", "minLength"}
    assert set(Draft202012Validator.VALIDATORS) - tried - plain == {"prefixItems", "unevaluatedItems"}


@pytest.mark.parametrize(
    "schema",
    [
        '{"type": "strng"}',
        "[]",
        "{",
        '{"$ref": "https://example.com/s"}',
        '{"$ref": "#/nowhere"}',
        '{"properties": {"a": {"$id": "b"}}}',
        '{"pattern": "(?=a)b"}',
        '{"patternProperties": {"(": {}}}',
        '{"format": "colour"}',
        '{"items": {"contentEncoding": "base64"}}',
        '{"nullable": true}',
        '{"dependencies": {}, "prefixItems": []}',
        '{"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": []}',
        '{"$schema": "http://json-schema.org/draft-04/schema#"}',
        '{"contains": 5}',
        '{"$dynamicRef": "#a"}',
        '{"not": ' * 80 + "{}" + "}" * 80,
    ],
)
def test_what_would_be_overlooked_is_refused(schema: str) -> None:
    with pytest.raises(Uncheckable, match=r"^#"):
        CheckedSchema(schema)


FORMATS: dict[str, tuple[list[str], list[str]]] = {
    "date": (["2024-02-29"], ["2023-02-29", "2024-2-9", "2024-W01-1", "x"]),
    "time": (["23:59:60Z", "01:02:03.5+01:00"], ["24:00:00Z", "01:02:03", "1:2:3Z"]),
    "date-time": (["2024-02-29T01:02:03Z"], ["2024-02-29", "2024-02-30T01:02:03Z", "2024-02-29T01:02:03"]),
    "duration": (["P1D", "PT1H", "P1Y2M3DT4H5M6S", "P2W"], ["P", "1D", "PT", "P1H"]),
    "email": (["a.b+c@example.org", '"a b"@x'], ["a", "@x", "a@", "a b@x", "a@-x"]),
    "hostname": (["a-b.example"], ["-a", "a..b", "a" * 64]),
    "ipv4": (["1.2.3.4"], ["1.2.3", "256.1.1.1", "01.2.3.4"]),
    "ipv6": (["::1", "1:2:3:4:5:6:7:8"], ["::1%eth0", ":::", "1.2.3.4"]),
    "uuid": (["123e4567-e89b-12d3-a456-426614174000"], ["123e4567e89b12d3a456426614174000"]),
    "uri": (["http://x/y?z#w", "urn:a:b"], ["x/y", "http://a b", "//x"]),
    "uri-reference": (["x/y", "#a"], ["a b", "#a#b"]),
    "json-pointer": (["", "/a/~0~1"], ["a", "/~2"]),
    "relative-json-pointer": (["0#", "1/a"], ["-1", "01"]),
    "regex": (["^a+$"], ["(", "(?=a)"]),
}


def test_every_format() -> None:
    made = checks()
    assert set(made) == set(FORMATS)
    for name, (good, bad) in FORMATS.items():
        assert [text for text in good if not made[name](text)] == [], name
        assert [text for text in bad if made[name](text)] == [], name


def test_where_and_what() -> None:
    schema = {"properties": {"a/b": {"type": "array", "items": {"minimum": 3}}}}
    [error] = CheckedSchema(json.dumps(schema)).verdict('{"a/b": [5, 1]}')["errors"]
    assert (error["path"], error["keyword"], error["schema_path"]) == ("/a~1b/1", "minimum", "#/properties/a~1b/items/minimum")
    assert "not JSON" in CheckedSchema("{}").verdict('{"a": NaN}')["errors"][0]["message"]
    assert len(CheckedSchema('{"items": {"type": "null"}}').verdict(json.dumps(["x" * 10_000] * 100))["errors"]) == 16


@pytest.fixture
async def checker() -> AsyncIterator[SchemaChecker]:
    made = SchemaChecker()
    yield made
    await made.close()


async def test_hostile_schemas_cost_their_own_request_only(checker: SchemaChecker) -> None:
    twice = {f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(40)}
    explosive = json.dumps({"$defs": {**twice, "a40": {"type": "string"}}, "$ref": "#/$defs/a0"})
    circular = '{"$ref": "#"}'
    slow = '{"type": "string", "pattern": "^(a+)+$"}'
    assert [await checker.problem_of(schema) for schema in (explosive, circular, slow)] == ["", "", ""]
    assert await checker.verdict(explosive, "1") == {"valid": None, "reason": TOO_LONG}
    assert (await checker.verdict(circular, "1"))["valid"] is None
    assert (await checker.verdict("{}", "[" * 100_000))["valid"] is None
    assert (await checker.verdict(slow, json.dumps("a" * 50_000 + "b")))["valid"] is False
    assert await checker.verdict("{}", "1") == {"valid": True}


async def test_a_checker_that_does_not_answer_is_ended() -> None:
    impatient = SchemaChecker(patience_s=0.0)
    assert await impatient.verdict("{}", "1") == {"valid": None, "reason": TOO_LONG}
    assert await impatient.problem_of("{}") == f"#: {TOO_LONG}"


def test_the_page_names_every_format_and_the_keywords_it_says_are_checked_are() -> None:
    page = DOCUMENT.read_text()
    assert all(f"`{name}`" in page for name in checks())
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    refused = {row[1].strip(" `") for row in rows if "refused" in (row[3].strip(), row[4].strip())}
    known = frozenset[str]().union(*(dialect.keywords for dialect in dialects().values()))
    assert refused - known == NEVER_CHECKED
