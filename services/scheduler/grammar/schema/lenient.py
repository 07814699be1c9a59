"""What of a schema a backend enforces: the rest is left out, for clients that have the answer checked afterwards.

Leaving out only ever allows more. Where two keywords do not hold together, the one that says more about the answer's
shape stays; an object that loses what names further properties is opened for them.
"""

from __future__ import annotations

import json
from typing import Any

from services.scheduler.grammar.schema.normal_form import Walker, read_schema
from services.scheduler.grammar.schema.problem import NotEnforced, Schema, refuse
from services.scheduler.grammar.schema.profile import Profile

_MOST_STEPS = 20_000
_CHOICES = ("anyOf", "oneOf", "allOf")
_SHAPES = ("properties", "items", "prefixItems", "patternProperties", "additionalProperties")
_MAY_NAME_PROPERTIES = (
    *_CHOICES,
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependentRequired",
    "dependencies",
)


def lenient_form(text: str, profile: Profile) -> str:
    """The JSON text of a schema that allows all that `text` allows in the order it says it. Raises SchemaProblem."""
    schema = read_schema(text)
    return json.dumps(_LenientWalker(schema, profile).walk(schema, "#"), ensure_ascii=False)


class _LenientWalker(Walker):
    """Takes keywords off a schema until the rest is enforced; what a schema was brought to is remembered by its identity."""

    def __init__(self, root: Any, profile: Profile) -> None:
        super().__init__(root, profile)
        self._reduced: dict[int, tuple[Any, Schema]] = {}
        self._steps = 0

    def walk(self, schema: Any, path: str) -> Schema:
        """See Walker."""
        _, reduced = self._reduced.get(id(schema), (schema, schema))
        while True:
            self._steps += 1
            if self._steps > _MOST_STEPS:
                refuse("#", "too much of it would have to be left out")
            try:
                return super().walk(reduced, path)
            except NotEnforced as problem:
                in_names = problem.path.startswith(f"{path}/patternProperties/")
                if not isinstance(reduced, dict) or not (problem.path == path or in_names):
                    raise
                reduced = _without(reduced, "patternProperties" if in_names else problem.keyword, problem)
                self._reduced[id(schema)] = (schema, reduced)


def _without(schema: Schema, name: str, problem: NotEnforced) -> Schema:
    """The schema without the keyword, or without the one beside it that is worth less. Raises the problem."""
    choice = next((key for key in _CHOICES if key in schema), None)
    unevaluated = next((key for key in schema if key.startswith("unevaluated")), None)
    if choice is not None and unevaluated is not None:
        name = unevaluated
    elif choice is not None and name not in _CHOICES and any(key in schema for key in _SHAPES):
        name = choice
    if name not in schema:
        raise problem
    left = {key: value for key, value in schema.items() if key != name}
    if name == "oneOf" and "anyOf" not in schema:
        return {**left, "anyOf": schema[name]}
    if name == "allOf":
        return _opened(_with_common_type(left, schema[name]), schema)
    if name == "patternProperties":
        return {key: value for key, value in left.items() if not key.startswith("unevaluated")} | {"additionalProperties": True}
    return _opened(left, schema) if name in _MAY_NAME_PROPERTIES else left


def _opened(left: Schema, schema: Schema) -> Schema:
    """What was left out may have named properties that the rest must not forbid."""
    silent = "additionalProperties" not in schema and "unevaluatedProperties" not in schema
    return {**left, "additionalProperties": True} if "properties" in left and silent else left


def _with_common_type(left: Schema, members: Any) -> Schema:
    """The one type that all members name."""
    types = {json.dumps(member.get("type")) if isinstance(member, dict) else "" for member in members}
    common = json.loads(types.pop()) if len(types) == 1 and "" not in types else None
    return {**left, "type": common} if isinstance(common, str) and "type" not in left else left
