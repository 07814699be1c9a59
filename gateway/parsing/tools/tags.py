"""Pieces of structural tags: free text in which calls follow a grammar. Every family puts its own together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Format = dict[str, Any]
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


def call(begin: str, schema: Mapping[str, Any], end: str) -> Format:
    """Arguments after `begin` and before `end`."""
    return tag(begin, json_schema(schema), end)


def tag(begin: str, content: Format, end: str) -> Format:
    """Anything between two texts."""
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def json_schema(schema: Mapping[str, Any]) -> Format:
    """A JSON value."""
    return {"type": "json_schema", "json_schema": dict(schema)}


def const(text: str) -> Format:
    """This text."""
    return {"type": "const_string", "value": text}


def regex(pattern: str) -> Format:
    """Text a regex describes as a whole."""
    return {"type": "regex", "pattern": pattern}


def one_of(elements: Sequence[Format]) -> Format:
    """Any of them."""
    return elements[0] if len(elements) == 1 else {"type": "or", "elements": list(elements)}


def sequence(elements: Sequence[Format]) -> Format:
    """One after the other."""
    return elements[0] if len(elements) == 1 else {"type": "sequence", "elements": list(elements)}


def optional(content: Format) -> Format:
    """It, or nothing."""
    return {"type": "optional", "content": content}


def several(tags: Sequence[Format], separator: str) -> Format:
    """At least one of the tags, with a separator between."""
    return {"type": "tags_with_separator", "tags": list(tags), "separator": separator, "at_least_one": True}


def in_text(triggers: Sequence[str], tags: Sequence[Format], *, last: bool = False) -> Format:
    """Free text; where a trigger comes up, one of the tags that begin with it must follow, and text again unless `last`."""
    return {"type": "triggered_tags", "triggers": list(triggers), "tags": list(tags), "stop_after_first": last}


def star(content: Format) -> Format:
    """It, any number of times."""
    return {"type": "star", "content": content}


def written(answer: Format) -> str:
    """The structural tag of a whole answer."""
    return json.dumps({"type": "structural_tag", "format": answer}, ensure_ascii=False)


def schema_of(function: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the arguments must be: the declared parameters of a strict function, any object otherwise."""
    return function["parameters"] if function.get("strict") else ANY_OBJECT
