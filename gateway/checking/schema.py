"""A schema that answers can be checked against, or the reason why it cannot be one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from jsonschema import SchemaError

from gateway.checking.dialect import NEVER_CHECKED, Dialect, dialects, expression, format_names

_MOST_ERRORS = 16
_LONGEST_MESSAGE = 300
_MOST_DEPTH = 64
_ONE = (
    "additionalItems", "additionalProperties", "contains", "else", "if", "not", "propertyNames", "then", "unevaluatedItems",
    "unevaluatedProperties",
)  # fmt: skip
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")


class Uncheckable(ValueError):
    """The message begins with the place, such as `#/properties/a`."""


class CheckedSchema:
    """Made of JSON text. Raises Uncheckable for a schema with anything in it that would be overlooked."""

    def __init__(self, text: str) -> None:
        try:
            self._schema = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Uncheckable(f"#: not valid JSON: {error}") from error
        if not isinstance(self._schema, dict | bool):
            raise Uncheckable("#: a schema is an object or a boolean")
        places = dict(_places(self._schema, "#", 0))
        self._dialect = _dialect(self._schema, places)
        for place, schema in places.items():
            _check_place(place, schema, places)
        try:
            self._dialect.check_itself(self._schema)
        except SchemaError as error:
            raise Uncheckable(f"{_pointer('#', error.absolute_path)}: {_short(error.message)}") from error

    def verdict(self, text: str) -> dict[str, Any]:
        """`valid`, and `errors` with path, keyword, schema_path and message each, where it is not."""
        try:
            value = json.loads(text, parse_constant=_no_constant)
        except ValueError as error:
            return {"valid": False, "errors": [{"path": "", "keyword": None, "schema_path": "#", "message": f"not JSON: {error}"}]}
        found = list(islice(self._dialect.errors(self._schema, value), _MOST_ERRORS))
        if not found:
            return {"valid": True}
        errors = [
            {
                "path": _pointer("", error.absolute_path),
                "keyword": error.validator,
                "schema_path": _pointer("#", error.absolute_schema_path),
                "message": _short(error.message),
            }
            for error in found
        ]
        return {"valid": False, "errors": errors}


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON value")


def _short(message: str) -> str:
    return message if len(message) <= _LONGEST_MESSAGE else message[: _LONGEST_MESSAGE - 1] + "…"


def _pointer(start: str, parts: Any) -> str:
    return start + "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in parts)


def _places(schema: Any, place: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Every schema in the document and its pointer."""
    if depth > _MOST_DEPTH:
        raise Uncheckable(f"{place[:200]}: nested more than {_MOST_DEPTH} deep")
    yield place, schema
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        inner: dict[str, Any] = {}
        if key in _ONE or (key == "items" and not isinstance(value, list)):
            inner = {"": value}
        elif (key in _LISTS or key == "items") and isinstance(value, list):
            inner = {f"/{i}": part for i, part in enumerate(value)}
        elif key in (*_MAPS, "dependencies") and isinstance(value, dict):
            inner = {_pointer("", [name]): part for name, part in value.items() if not isinstance(part, list)}
        for tail, part in inner.items():
            yield from _places(part, f"{place}/{key}{tail}", depth + 1)


def _dialect(root: Any, places: dict[str, Any]) -> Dialect:
    """The one `$schema` names, else the newest that knows all keywords in use."""
    known = dialects()
    named = root.get("$schema") if isinstance(root, dict) else None
    if named is not None:
        dialect = known.get(str(named).removesuffix("#"))
        if dialect is None:
            raise Uncheckable(f"#: $schema must be one of {', '.join(known)}")
        _check_known(dialect, places)
        return dialect
    problem: Uncheckable | None = None
    for dialect in known.values():
        try:
            _check_known(dialect, places)
        except Uncheckable as error:
            problem = problem or error
        else:
            return dialect
    raise problem or Uncheckable("#: no dialect")


def _check_known(dialect: Dialect, places: dict[str, Any]) -> None:
    anywhere = frozenset().union(*(d.keywords for d in dialects().values())) | NEVER_CHECKED
    for place, schema in places.items():
        if not isinstance(schema, dict):
            continue
        strange = [key for key in schema if key in anywhere and key not in dialect.keywords and schema[key] is not False]
        if strange:
            raise Uncheckable(f"{place}: {strange[0]} is not checked in the dialect {dialect.uri}")
        if isinstance(schema.get("items"), list) and not dialect.lists_items:
            raise Uncheckable(f"{place}: items as a list is not checked in the dialect {dialect.uri}; write prefixItems")


def _check_place(place: str, schema: Any, places: dict[str, Any]) -> None:
    if not isinstance(schema, dict):
        return
    if place != "#" and ("$id" in schema or "$schema" in schema):
        raise Uncheckable(f"{place}: $id and $schema are understood at the root only")
    _check_references(place, schema, places)
    patterns = [schema["pattern"]] if isinstance(schema.get("pattern"), str) else []
    patterns += schema.get("patternProperties") or () if isinstance(schema.get("patternProperties"), dict) else ()
    for pattern in patterns:
        try:
            expression(pattern)
            re.compile(pattern if "unevaluatedProperties" in schema else "")
        except (ValueError, re.error) as error:
            raise Uncheckable(f"{place}: the pattern {pattern!r} cannot be checked: {error}") from error
    wanted = schema.get("format")
    if wanted is not None and wanted not in format_names():
        raise Uncheckable(f"{place}: format {wanted!r} is not checked; those that are: {', '.join(sorted(format_names()))}")


def _check_references(place: str, schema: dict[str, Any], places: dict[str, Any]) -> None:
    reference = schema.get("$ref")
    if reference is not None and reference not in places:
        raise Uncheckable(f"{place}: $ref {reference!r} is no schema of this document; # and #/… are")
    if schema.get("$recursiveRef", "#") != "#":
        raise Uncheckable(f"{place}: $recursiveRef must be #")
    dynamic = schema.get("$dynamicRef")
    if dynamic is not None:
        anchors = {f"#{s[key]}" for s in places.values() if isinstance(s, dict) for key in ("$dynamicAnchor", "$anchor") if key in s}
        if dynamic not in anchors and dynamic not in places:
            raise Uncheckable(f"{place}: $dynamicRef {dynamic!r} names no anchor of this document")
