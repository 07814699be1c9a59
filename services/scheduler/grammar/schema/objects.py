"""Object keywords: which names, which values, how many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from services.scheduler.grammar.regex_text import BadRegex, matches_somewhere, parse_search
from services.scheduler.grammar.schema.problem import Schema, not_enforced, refuse, whole_number
from services.scheduler.grammar.schema.profile import Profile
from services.scheduler.grammar.schema.strings import canonical_pattern

_MOST_PROPERTIES = 10_000
Walk = Callable[[Any, str], Schema]


def object_keywords(schema: Schema, path: str, profile: Profile, walk: Walk) -> Schema:
    """The object keywords of a schema. Undeclared names are allowed only where the schema speaks of them, or of none."""
    declared = _mapping(schema, "properties", path)
    patterns = _mapping(schema, "patternProperties", path)
    required = _required(schema, path)
    spoken: Any = schema.get("additionalProperties", schema.get("unevaluatedProperties"))
    others: Any = not ((declared and profile.closes_objects) or patterns) if spoken is None else spoken
    properties = {name: walk(value, f"{path}/properties/{name}") for name, value in declared.items()}
    for name in required:
        if name not in properties:
            properties[name] = _undeclared(name, bool(patterns), spoken, path, walk)
    out: Schema = {"properties": properties} if properties else {}
    if required:
        out["required"] = required
    if patterns:
        out["patternProperties"] = _patterns(patterns, properties, others, path, profile, walk)
        others = False
    out["additionalProperties"] = others if isinstance(others, bool) else walk(others, f"{path}/additionalProperties")
    if "propertyNames" in schema:
        out.update(_names(schema, properties, bool(patterns), path, profile, walk))
    out.update(_counts(schema, properties, required, out["additionalProperties"] is False and not patterns, path, profile))
    return out


def _mapping(schema: Schema, keyword: str, path: str) -> dict[str, Any]:
    value = schema.get(keyword, {})
    if not isinstance(value, dict):
        refuse(path, f"{keyword} must be an object")
    if len(value) > _MOST_PROPERTIES:
        refuse(path, f"{keyword} has {len(value)} entries, at most {_MOST_PROPERTIES} are allowed")
    return value


def _required(schema: Schema, path: str) -> list[str]:
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        refuse(path, "required must be a list of names")
    return list(dict.fromkeys(required))


def _undeclared(name: str, has_patterns: bool, spoken: Any, path: str, walk: Walk) -> Schema:
    """Schema of a name that is required, but not declared."""
    if has_patterns:
        refuse(path, f"required names {name!r}, which properties does not declare beside patternProperties")
    if spoken is False:
        refuse(path, f"required names {name!r}, which additionalProperties forbids")
    return walk({} if spoken is None else spoken, f"{path}/additionalProperties")


def _patterns(patterns: dict[str, Any], properties: Schema, others: Any, path: str, profile: Profile, walk: Walk) -> dict[str, Schema]:
    if len(patterns) > 1:
        not_enforced(path, "patternProperties with several patterns", profile.name, "a name may match more than one")
    [(pattern, value)] = patterns.items()
    place = f"{path}/patternProperties/{pattern}"
    try:
        parse_search(pattern)
    except BadRegex as error:
        refuse(place, str(error))
    overlap = next((name for name in properties if matches_somewhere(pattern, name)), None)
    if overlap is not None:
        not_enforced(path, f"patternProperties {pattern!r} on the declared property {overlap!r}", profile.name)
    if others is not False:
        not_enforced(path, "additionalProperties beside patternProperties", profile.name, "only false is")
    return {canonical_pattern(pattern, place, profile): walk(value, place)}


def _names(schema: Schema, properties: Schema, has_patterns: bool, path: str, profile: Profile, walk: Walk) -> Schema:
    """`propertyNames`, which declared names must obey by themselves."""
    rule = schema["propertyNames"]
    if rule is True or rule == {}:
        return {}
    if not profile.property_names:
        not_enforced(path, "propertyNames", profile.name)
    if has_patterns:
        not_enforced(path, "propertyNames beside patternProperties", profile.name)
    place = f"{path}/propertyNames"
    walked = walk({**rule, "type": "string"} if isinstance(rule, dict) else rule, place)
    if properties:
        not_enforced(path, "propertyNames beside declared properties", profile.name, "declare the names, or none")
    return {"propertyNames": walked}


def _counts(schema: Schema, properties: Schema, required: list[str], closed: bool, path: str, profile: Profile) -> Schema:
    least, most = (whole_number(schema, key, path, _MOST_PROPERTIES) for key in ("minProperties", "maxProperties"))
    if least is not None and least <= len(required):
        least = None
    if most is not None and closed and most >= len(properties):
        most = None
    counts = {key: value for key, value in (("minProperties", least), ("maxProperties", most)) if value is not None}
    if counts and not profile.count_properties:
        not_enforced(path, next(iter(counts)), profile.name)
    if counts and not closed:
        not_enforced(path, next(iter(counts)), profile.name, "it is where only declared properties are allowed")
    if least is not None and (least > len(properties) or (most is not None and least > most)):
        refuse(path, f"minProperties {least} is more than there may be")
    return counts
