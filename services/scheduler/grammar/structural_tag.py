"""Structural tags: free text in which marked parts follow a grammar. The schemas in them are checked like any other."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

_SCHEMA_KEYS = ("schema", "json_schema")
_MAX_DEPTH = 32


class BadTag(ValueError):
    """Not a structural tag; the message says why."""


def with_checked_parts(text: str, check_schema: Callable[[str], str], check_regex: Callable[[str], str]) -> str:
    """The tag with every JSON schema and regex in it replaced by its checked form. Raises BadTag."""
    try:
        tag = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadTag(f"not valid JSON: {error}") from error
    if not isinstance(tag, dict):
        raise BadTag("expected a JSON object")
    return json.dumps(_checked(tag, check_schema, check_regex, 0), ensure_ascii=False)


def triggered_tags(text: str) -> str:
    """A tag in today's spelling; one with `structures` and `triggers`, as SGLang's users write it, becomes that."""
    tag = json.loads(text)
    if "structures" not in tag:
        return text
    try:
        tags = [
            {
                "type": "tag",
                "begin": structure["begin"],
                "content": {"type": "json_schema", "json_schema": structure.get("schema", {})},
                "end": structure["end"],
            }
            for structure in tag["structures"]
        ]
        return json.dumps({"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": tag["triggers"], "tags": tags}})
    except (KeyError, TypeError, AttributeError) as error:
        raise BadTag(f"structures need begin, schema and end, and triggers beside them: {error}") from error


def _checked(value: Any, check_schema: Callable[[str], str], check_regex: Callable[[str], str], depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise BadTag(f"nested more than {_MAX_DEPTH} deep")
    if isinstance(value, list):
        return [_checked(entry, check_schema, check_regex, depth + 1) for entry in value]
    if not isinstance(value, dict):
        return value
    out: dict[str, Any] = {}
    for key, entry in value.items():
        if key in _SCHEMA_KEYS and isinstance(entry, dict | bool):
            out[key] = json.loads(check_schema(json.dumps(entry)))
        elif key == "pattern" and value.get("type") == "regex" and isinstance(entry, str):
            out[key] = check_regex(entry)
        else:
            out[key] = _checked(entry, check_schema, check_regex, depth + 1)
    return out
