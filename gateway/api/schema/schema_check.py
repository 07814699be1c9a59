"""`schema_check`: whether a schema must be enforced in full, or is checked once the answer is whole."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gateway.api.schema.reader import Fields
from gateway.flight.spec import Constraint, SchemaCheck
from services.common.errors import InvalidRequest

BEFORE, AFTER = "before", "after"


def read_schema_check(
    fields: Fields, constraint: Constraint | None, functions: Sequence[Mapping[str, Any]] = ()
) -> tuple[Constraint | None, SchemaCheck | None]:
    """The constraint as it goes to the worker, and what is checked. functions: those whose calls are parsed."""
    mode = fields.string("schema_check", BEFORE)
    if mode not in (BEFORE, AFTER):
        raise fields.bad("schema_check", f"{BEFORE} or {AFTER}")
    if mode == BEFORE:
        return constraint, None
    of_tools = constraint is not None and constraint.field == "tools"
    schema = constraint is not None and constraint.kind == "json_schema" and not of_tools
    if constraint is not None and not schema and not of_tools:
        name = fields.path("schema_check")
        raise InvalidRequest(f"{name} is about JSON schemas, not about {constraint.kind}", field=name)
    if not schema and not functions:
        name = fields.path("schema_check")
        raise InvalidRequest(f"{name} needs a JSON schema, or tools whose calls are parsed", field=name)
    calls = {function["name"]: json.dumps(function["parameters"], ensure_ascii=False) for function in functions}
    if constraint is None:
        return None, SchemaCheck("tools", calls=calls)
    lenient = replace(constraint, lenient=True)
    return lenient, SchemaCheck(constraint.field or constraint.kind, constraint.text if schema else "", calls)
