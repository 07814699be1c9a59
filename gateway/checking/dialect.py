"""Which JSON Schema dialect a schema is written in, and the validator of that dialect with linear-time expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

from jsonschema import (
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
    FormatChecker,
    ValidationError,
    validators,
)
from referencing import Registry

from gateway.checking import formats

_VALIDATORS: Mapping[str, Any] = {
    "https://json-schema.org/draft/2020-12/schema": Draft202012Validator,
    "https://json-schema.org/draft/2019-09/schema": Draft201909Validator,
    "http://json-schema.org/draft-07/schema": Draft7Validator,
    "http://json-schema.org/draft-06/schema": Draft6Validator,
}
_BESIDE = {"if": ("then", "else"), "contains": ("minContains", "maxContains")}
NEVER_CHECKED = frozenset(("contentEncoding", "contentMediaType", "contentSchema", "nullable"))

expression = lru_cache(256)(formats.expression_of)


class Dialect:
    """keywords: those its validator checks."""

    def __init__(self, uri: str) -> None:
        base = _VALIDATORS[uri]
        self.uri = uri
        self.validator = validators.extend(base, _overridden(base))  # type: ignore[no-untyped-call]
        keywords = set(base.VALIDATORS)
        counts_contained = "dependentRequired" in keywords
        keywords |= {name for name in _BESIDE["if"] if "if" in keywords}
        keywords |= {name for name in _BESIDE["contains"] if counts_contained}
        self.keywords = frozenset(keywords)
        self.lists_items = "prefixItems" not in keywords

    def check_itself(self, schema: Any) -> None:
        """Raises jsonschema.SchemaError for what is no schema of this dialect."""
        self.validator.check_schema(schema)

    def errors(self, schema: Any, value: Any) -> Iterator[ValidationError]:
        """What is wrong with the value. No reference is ever fetched."""
        found: Iterator[ValidationError] = self.validator(schema, registry=Registry(), format_checker=_format_checker()).iter_errors(value)
        return found


@cache
def dialects() -> dict[str, Dialect]:
    """All of them by their URI, the newest first."""
    return {uri: Dialect(uri) for uri in _VALIDATORS}


@cache
def format_names() -> frozenset[str]:
    """Formats that are checked."""
    return frozenset(formats.checks())


@cache
def _format_checker() -> FormatChecker:
    checker = FormatChecker(formats=())
    for name, check in formats.checks().items():
        checker.checks(name)(_of_strings(check))
    return checker


def _of_strings(check: Callable[[str], bool]) -> Callable[[object], bool]:
    return lambda value: not isinstance(value, str) or check(value)


def _overridden(base: Any) -> dict[str, Any]:
    """Keywords about expressions: the library's own would use one whose time has no bound."""
    theirs = base.VALIDATORS["additionalProperties"]

    def pattern(_: Any, wanted: str, value: Any, __: Any) -> Iterator[ValidationError]:
        if isinstance(value, str) and expression(wanted).search(value) is None:
            yield ValidationError(f"{value!r} does not match {wanted!r}")

    def pattern_properties(validator: Any, patterns: Mapping[str, Any], value: Any, _: Any) -> Iterator[ValidationError]:
        if isinstance(value, dict):
            for wanted, schema in patterns.items():
                for name, item in value.items():
                    if expression(wanted).search(name) is not None:
                        yield from validator.descend(item, schema, path=name, schema_path=wanted)

    def additional_properties(validator: Any, allowed: Any, value: Any, schema: Mapping[str, Any]) -> Iterator[ValidationError]:
        patterns = schema.get("patternProperties", {})
        if isinstance(value, dict) and patterns:
            value = {name: item for name, item in value.items() if not any(expression(p).search(name) for p in patterns)}
            schema = {key: entry for key, entry in schema.items() if key != "patternProperties"}
        yield from theirs(validator, allowed, value, schema) or ()

    return {"pattern": pattern, "patternProperties": pattern_properties, "additionalProperties": additional_properties}
