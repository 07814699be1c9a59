"""Whatever a schema that was accepted lets through is valid JSON and valid under the schema."""

from __future__ import annotations

import contextlib
import json
import random
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.grammar.formats import FORMATS
from services.scheduler.grammar.interface import GrammarKind, InvalidGrammar
from tests.unit.grammar.following import NAMES, matcher, wander

names = st.sampled_from(["a", "b", "na me", "é", 'q"', "x1"])
scalars = st.one_of(st.none(), st.booleans(), st.integers(-20, 20), st.sampled_from(["a", "é", 'q"\n', ""]))


def _strings() -> st.SearchStrategy[dict[str, Any]]:
    bounds = st.fixed_dictionaries({"type": st.just("string")}, optional={"minLength": st.integers(0, 4), "maxLength": st.integers(2, 6)})
    patterns = st.sampled_from(["^a+$", "b", "^[^x]{1,3}$", "^(a|é)b?$", r"^\d{2}", "[A-C]$", "^[a-z]+@[a-z]+$", '^"?a$'])
    with_pattern = st.fixed_dictionaries({"type": st.just("string"), "pattern": patterns}, optional={"maxLength": st.integers(1, 5)})
    return st.one_of(bounds, with_pattern, st.sampled_from(sorted(FORMATS)).map(lambda f: {"type": "string", "format": f}))


def _numbers() -> st.SearchStrategy[dict[str, Any]]:
    bound = st.one_of(st.integers(-30, 30), st.sampled_from([0.5, -1.25, 10.75]))
    keys = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    kind = st.sampled_from(["integer", "number"])
    bounded = st.fixed_dictionaries({"type": kind}, optional=dict.fromkeys(keys, bound))
    return st.one_of(bounded, st.integers(1, 9).map(lambda n: {"type": "integer", "multipleOf": n}))


def _leaves() -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        _strings(),
        _numbers(),
        st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"type": ["string", "null"], "maxLength": 3}]),
        st.lists(scalars, min_size=1, max_size=4).map(lambda values: {"enum": values}),
        scalars.map(lambda value: {"const": value}),
        st.just({"enum": [1, "a", None], "type": ["string", "integer"]}),
    )


def _grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    count = st.integers(0, 3)
    arrays = st.fixed_dictionaries(
        {"type": st.just("array")},
        optional={"items": inner, "prefixItems": st.lists(inner, min_size=1, max_size=2), "minItems": count, "maxItems": count},
    )
    objects = st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(names, inner, max_size=3)},
        optional={
            "required": st.lists(names, max_size=2, unique=True),
            "additionalProperties": st.one_of(st.booleans(), inner),
            "minProperties": count,
            "maxProperties": count,
        },
    )
    patterned = st.fixed_dictionaries({"type": st.just("object"), "patternProperties": st.dictionaries(st.just("^k"), inner, min_size=1)})
    named = st.fixed_dictionaries({"type": st.just("object"), "propertyNames": st.just({"pattern": "^[a-c]+$"})})
    lists = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        arrays,
        objects,
        patterned,
        named,
        lists.map(lambda parts: {"anyOf": parts}),
        lists.map(lambda parts: {"oneOf": parts}),
        lists.map(lambda parts: {"allOf": parts}),
        inner.map(lambda part: {"$ref": "#/$defs/x", "$defs": {"x": part}}),
        st.tuples(inner, inner).map(lambda pair: {**pair[0], **pair[1]}),
    )


schemas = st.recursive(_leaves(), _grown, max_leaves=6)


@pytest.mark.parametrize("name", NAMES)
@given(schema=schemas, seed=st.integers(0, 1000))
@settings(max_examples=150, deadline=None)
def test_answers_validate(name: str, schema: dict[str, Any], seed: int) -> None:
    try:
        follower = matcher(name, GrammarKind.JSON_SCHEMA, json.dumps(schema))
    except InvalidGrammar:
        return
    text = wander(follower, random.Random(seed))
    if text is not None:
        answer = json.loads(text)
        with contextlib.suppress(RecursionError):  # references that go round in circles are too much for the validator
            jsonschema.validate(answer, schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
