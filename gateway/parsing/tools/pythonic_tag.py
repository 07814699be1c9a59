"""The grammar of pythonic calls: the properties of a function's parameters become keyword arguments with JSON values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.parsing.tools import tags
from services.common.errors import InvalidRequest

_DEFINITIONS = ("$defs", "definitions")
_KNOWN = frozenset(("type", "properties", "required", "additionalProperties", "title", "description", *_DEFINITIONS))
_MOST_OPTIONAL = 12
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_ANYTHING = r"""([^()"']|"([^"\\\n]|\\[^\n])*"|'([^'\\\n]|\\[^\n])*')*"""


def structural_tag(functions: Sequence[Mapping[str, Any]]) -> str:
    """A list of calls and nothing else, or text, which does not begin with a bracket."""
    calls = tags.several([tags.tag(f"{f['name']}(", _arguments(f), ")") for f in functions], ", ")
    return tags.written(tags.one_of([tags.tag("[", calls, "]"), tags.regex(r"[^\[\s](.|\n)*")]))


def _arguments(function: Mapping[str, Any]) -> tags.Format:
    """Required ones first, then those that may be left out, each in the order of the schema."""
    if not function.get("strict"):
        return tags.regex(_ANYTHING)
    parameters = function["parameters"]
    properties = parameters.get("properties") or {}
    _check(function["name"], parameters, properties)
    shared = {key: parameters[key] for key in _DEFINITIONS if key in parameters}
    required = [name for name in properties if name in (parameters.get("required") or ())]
    free = [name for name in properties if name not in required]

    def argument(name: str) -> tags.Format:
        schema = properties[name]
        return tags.sequence([tags.const(f"{name}="), tags.json_schema({**schema, **shared} if isinstance(schema, dict) else {})])

    def further(names: Sequence[str]) -> list[tags.Format]:
        return [tags.optional(tags.sequence([tags.const(", "), argument(name)])) for name in names]

    if not required:
        starts = [tags.sequence([argument(name), *further(free[place + 1 :])]) for place, name in enumerate(free)]
        return tags.optional(tags.one_of(starts)) if starts else tags.const("")
    joined = [argument(required[0])]
    for name in required[1:]:
        joined += [tags.const(", "), argument(name)]
    return tags.sequence([*joined, *further(free)])


def _check(name: str, parameters: Mapping[str, Any], properties: Mapping[str, Any]) -> None:
    beyond = sorted(key for key in parameters if key not in _KNOWN and not key.startswith("x-"))
    if beyond:
        raise _not_strict(name, f"keyword arguments cannot be held to {beyond[0]}")
    if not all(_NAME.fullmatch(argument) for argument in properties):
        raise _not_strict(name, "its properties are no names of keyword arguments")
    required = parameters.get("required") or ()
    if any(argument not in properties for argument in required):
        raise _not_strict(name, "it requires a property that it does not declare")
    if not required and len(properties) > _MOST_OPTIONAL:
        raise _not_strict(name, f"none of its {len(properties)} properties is required, at most {_MOST_OPTIONAL} such are possible")


def _not_strict(name: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"the tool {name!r} cannot be strict with the pythonic parser: {why}", field="tools")
