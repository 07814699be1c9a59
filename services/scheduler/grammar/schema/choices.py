"""Keywords that offer alternatives: enum, const, anyOf, oneOf, allOf, and whether alternatives exclude each other."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from typing import Any

from services.scheduler.grammar.schema.problem import Schema, not_enforced, refuse
from services.scheduler.grammar.schema.profile import Profile

Walk = Callable[[Any, str], Schema]
Resolve = Callable[[Any], Any]

_MOST_VALUES = 20_000
_MOST_MEMBERS = 64  # each is compared with each
_PYTHON: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}


def allowed_values(schema: Schema, types: set[str] | None, path: str) -> list[Any] | None:
    """Values that enum or const allow and the type does not forbid; None without either keyword."""
    if "enum" in schema and "const" in schema:
        values = [value for value in _enum(schema, path) if _same(value, schema["const"])]
    elif "enum" in schema:
        values = _enum(schema, path)
    elif "const" in schema:
        values = [schema["const"]]
    else:
        return None
    kept = [value for value in values if types is None or any(_is_of(value, name) for name in types)]
    if not kept:
        refuse(path, "no value of enum or const is allowed by the other keywords")
    return kept


def _enum(schema: Schema, path: str) -> list[Any]:
    values = schema["enum"]
    if not isinstance(values, list) or not values:
        refuse(path, "enum must be a list of at least one value")
    if len(values) > _MOST_VALUES:
        refuse(path, f"enum has {len(values)} values, at most {_MOST_VALUES} are allowed")
    return values


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _is_of(value: Any, name: str) -> bool:
    if isinstance(value, bool) and name != "boolean":
        return False
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _PYTHON[name])


def alternatives(schema: Schema, path: str, profile: Profile, walk: Walk, resolve: Resolve) -> Schema:
    """anyOf, oneOf and allOf of a schema, as the backend takes them."""
    out: Schema = {}
    if "anyOf" in schema:
        out["anyOf"] = [walk(part, f"{path}/anyOf/{i}") for i, part in enumerate(_members(schema, "anyOf", path))]
    if "oneOf" in schema:
        members = _members(schema, "oneOf", path)
        if len(members) > _MOST_MEMBERS:
            refuse(path, f"oneOf has {len(members)} members, at most {_MOST_MEMBERS} are allowed")
        if not all(exclude_each_other(resolve(a), resolve(b), resolve) for a, b in combinations(members, 2)):
            why = "its members may hold together; give each its own type, or a required property with its own constant"
            not_enforced(path, "oneOf", profile.name, why)
        walked = [walk(part, f"{path}/oneOf/{i}") for i, part in enumerate(members)]
        if "anyOf" in out:
            not_enforced(path, "oneOf beside anyOf", profile.name)
        out["anyOf"] = walked
    if "allOf" in schema:
        members = _members(schema, "allOf", path)
        if len(members) > 1 and not profile.all_of:
            not_enforced(path, "allOf", profile.name, "with more than one member")
        out["allOf"] = [walk(part, f"{path}/allOf/{i}") for i, part in enumerate(members)]
    return out


def _members(schema: Schema, keyword: str, path: str) -> list[Any]:
    members = schema[keyword]
    if not isinstance(members, list) or not members:
        refuse(path, f"{keyword} must be a list of at least one schema")
    return members


def exclude_each_other(one: Any, other: Any, resolve: Resolve) -> bool:
    """Whether no value can satisfy both, for a reason that can be seen."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return False
    mine, theirs = _constants(one), _constants(other)
    if mine is not None and theirs is not None:
        return not mine & theirs
    if _kinds(one) is not None and _kinds(other) is not None and not (_kinds(one) or set()) & (_kinds(other) or set()):
        return True
    return _kinds(one) == _kinds(other) == {"object"} and _told_apart(one, other, resolve)


def _told_apart(one: Schema, other: Schema, resolve: Resolve) -> bool:
    """By a property that both require, with no constant in common."""
    common = set(one.get("required", ())) & set(other.get("required", ()))
    for name in common:
        mine, theirs = resolve(one.get("properties", {}).get(name)), resolve(other.get("properties", {}).get(name))
        if isinstance(mine, dict) and isinstance(theirs, dict):
            values = _constants(mine), _constants(theirs)
            if values[0] is not None and values[1] is not None and not values[0] & values[1]:
                return True
    return False


def _constants(schema: Schema) -> set[str] | None:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list):
        return None
    return {json.dumps(value, sort_keys=True) for value in values}


def _kinds(schema: Schema) -> set[str] | None:
    kinds = schema.get("type")
    if kinds is None:
        return {"object"} if "properties" in schema and "required" in schema else None
    named = {kinds} if isinstance(kinds, str) else set(kinds) if isinstance(kinds, list) else set()
    return {"number" if name == "integer" else name for name in named}
