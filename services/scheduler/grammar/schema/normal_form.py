"""A schema whose every keyword a backend enforces, or a refusal that names the keyword and its place."""

from __future__ import annotations

import difflib
import json
from typing import Any

from services.scheduler.grammar.schema.arrays import array_keywords
from services.scheduler.grammar.schema.choices import allowed_values, alternatives
from services.scheduler.grammar.schema.keywords import ANNOTATIONS, BY_NAME, HARMLESS_IF_FALSE, always_refused
from services.scheduler.grammar.schema.numbers import number_keywords
from services.scheduler.grammar.schema.objects import object_keywords
from services.scheduler.grammar.schema.problem import Schema, SchemaProblem, not_enforced, refuse
from services.scheduler.grammar.schema.profile import Profile
from services.scheduler.grammar.schema.strings import string_keywords

MAX_BYTES = 256 * 1024
_MAX_DEPTH = 64
_TYPES = ("string", "number", "integer", "boolean", "null", "array", "object")
_DEFINITIONS = ("$defs", "definitions")
_CHOICES = ("anyOf", "oneOf", "allOf", "enum", "const", "$ref")


def normal_form(text: str, profile: Profile) -> str:
    """The JSON text of an equal or stricter schema. Raises SchemaProblem."""
    schema = read_schema(text)
    return json.dumps(Walker(schema, profile).walk(schema, "#"), ensure_ascii=False)


def read_schema(text: str) -> Any:
    """The schema as a value, an object or a boolean. Raises SchemaProblem."""
    if len(text) > MAX_BYTES:
        raise SchemaProblem(f"#: {len(text)} characters, at most {MAX_BYTES} are allowed")
    try:
        schema = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise SchemaProblem(f"#: not valid JSON: {error}") from error
    if not isinstance(schema, dict | bool):
        refuse("#", "a schema is an object or a boolean")
    return schema


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON value")


class Walker:
    """Brings the schemas of one document into form."""

    def __init__(self, root: Any, profile: Profile) -> None:
        self._root = root
        self._profile = profile

    def walk(self, schema: Any, path: str) -> Schema:
        """The form of one schema."""
        if schema is True:
            return {}
        if schema is False:
            refuse(path, "the schema false allows nothing")
        if not isinstance(schema, dict):
            refuse(path, f"a schema is an object or a boolean, not {type(schema).__name__}")
        if path.count("/") > 2 * _MAX_DEPTH:
            refuse(path[:200], f"nested more than {_MAX_DEPTH} deep")
        given = self._known_keywords(schema, path)
        out = {key: self._definitions(given[key], f"{path}/{key}") for key in _DEFINITIONS if key in given}
        out.update(self._constraints(given, path))
        return out

    def _known_keywords(self, schema: Schema, path: str) -> Schema:
        """Without annotations. Refuses what the backend never enforces and what is no keyword at all."""
        given: Schema = {}
        for key, value in schema.items():
            if key in ANNOTATIONS or key.startswith("x-"):
                continue
            if key not in BY_NAME:
                near = difflib.get_close_matches(key, BY_NAME, n=1)
                refuse(path, f"unknown keyword {key!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
            if key in HARMLESS_IF_FALSE and value is False:
                continue
            if always_refused(key, self._profile.name):
                not_enforced(path, key, self._profile.name, BY_NAME[key].note if key == "nullable" else "")
            given[key] = value
        return given

    def _definitions(self, definitions: Any, path: str) -> Schema:
        if not isinstance(definitions, dict):
            refuse(path, "expected an object of schemas")
        return {name: self.walk(schema, f"{path}/{name}") for name, schema in definitions.items()}

    def _constraints(self, given: Schema, path: str) -> Schema:
        types = self._types(given, path)
        constraints = {key: value for key, value in given.items() if key not in _DEFINITIONS}
        self._check_siblings(constraints, path)
        if "$ref" in given:
            reference = {"$ref": self._reference(given["$ref"], path)}
            others = {key: value for key, value in constraints.items() if key != "$ref"}
            return {"allOf": [reference, self._constraints(others, path)]} if others else reference
        values = allowed_values(given, types, path)
        out: Schema = alternatives(given, path, self._profile, self.walk, self._resolve)
        if len(out) == 1 and len(out.get("allOf", ())) == 1 and not types and values is None:
            return dict(out["allOf"][0])
        if values is not None:
            out["enum"] = values
            if not self._profile.siblings:
                return out
        if types is not None:
            out["type"] = next(iter(types)) if len(types) == 1 else sorted(types)
            out.update(self._of_types(given, types, path))
        return out

    def _types(self, given: Schema, path: str) -> set[str] | None:
        """Types a value may have; those its keywords are about if it does not say. None leaves it open."""
        if "type" not in given:
            implied = {name for key in given for name in BY_NAME[key].types}
            return implied - {"integer"} or None
        named = given["type"]
        types = [named] if isinstance(named, str) else named
        if not isinstance(types, list) or not types or not all(isinstance(name, str) for name in types):
            refuse(path, "type must be a type's name or a list of them")
        for name in types:
            if name not in _TYPES:
                refuse(path, f"unknown type {name!r}; the types are {', '.join(_TYPES)}")
        return set(types) - ({"integer"} if "number" in types else set())

    def _of_types(self, given: Schema, types: set[str], path: str) -> Schema:
        out: Schema = {}
        if "string" in types:
            out.update(string_keywords(given, path, self._profile))
        if types & {"number", "integer"}:
            out.update(number_keywords(given, types, path, self._profile))
        if "array" in types:
            out.update(array_keywords(given, path, self.walk))
        if "object" in types:
            out.update(object_keywords(given, path, self._profile, self.walk))
        return out

    def _check_siblings(self, constraints: Schema, path: str) -> None:
        """What stands beside a choice holds only where the backend combines constraints."""
        choice = next((key for key in _CHOICES if key in constraints), None)
        if choice is None:
            return
        others = [key for key in constraints if key != choice and not (choice in ("enum", "const") and key in ("type", "enum", "const"))]
        if others and any(key.startswith("unevaluated") for key in others):
            not_enforced(path, f"{others[0]} beside {choice}", self._profile.name)
        if others and not self._profile.siblings:
            not_enforced(path, f"{others[0]} beside {choice}", self._profile.name)

    def _reference(self, reference: Any, path: str) -> str:
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            not_enforced(path, f"$ref {reference!r}", self._profile.name, "only places in the same schema, # or #/…, are")
        target = self._resolve({"$ref": reference})
        if not isinstance(target, dict | bool):
            refuse(path, f"$ref {reference!r} points nowhere")
        return reference

    def _resolve(self, schema: Any) -> Any:
        """What a schema stands for if it is nothing but a reference; None if that points nowhere or in a circle."""
        for _ in range(_MAX_DEPTH):
            if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
                return schema
            schema = self._at(schema["$ref"])
        return None

    def _at(self, reference: str) -> Any:
        place: Any = self._root
        for part in reference.removeprefix("#").split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(place, dict) and key in place:
                place = place[key]
            elif isinstance(place, list) and key.isdigit() and int(key) < len(place):
                place = place[int(key)]
            else:
                return None
        return place
