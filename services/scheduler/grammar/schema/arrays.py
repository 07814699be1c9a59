"""Array keywords: items, their number, and their places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from services.scheduler.grammar.schema.problem import Schema, refuse, whole_number

_MOST_ITEMS = 100_000
Walk = Callable[[Any, str], Schema]


def array_keywords(schema: Schema, path: str, walk: Walk) -> Schema:
    """The array keywords of a schema, in today's spelling; `walk` brings the schemas of items into form."""
    prefix, rest, rest_path = _places(schema, path)
    least, most = whole_number(schema, "minItems", path, _MOST_ITEMS), whole_number(schema, "maxItems", path, _MOST_ITEMS)
    if most is not None:
        prefix = prefix[:most]
    if rest is False and (most is None or most > len(prefix)):
        most = len(prefix)
    if least is not None and most is not None and least > most:
        refuse(path, f"minItems {least} is greater than the {most} items there may be")
    out: Schema = {}
    if prefix:
        out["prefixItems"] = [walk(entry, entry_path) for entry, entry_path in prefix]
    closed = rest is False or (most is not None and most <= len(prefix))
    if rest is not None and not closed:
        out["items"] = walk(rest, rest_path)
    elif prefix or closed:
        out["items"] = False if closed else {}
    if least:
        out["minItems"] = least
    if most is not None and not (closed and most == len(prefix)):
        out["maxItems"] = most
    return out


def _places(schema: Schema, path: str) -> tuple[list[tuple[Any, str]], Any, str]:
    """(schemas by place with their paths, schema of the others or None, its path)."""
    tuple_style = isinstance(schema.get("items"), list)
    key = "items" if tuple_style else "prefixItems"
    listed = schema.get(key, [])
    if not isinstance(listed, list):
        refuse(path, f"{key} must be a list of schemas")
    prefix = [(entry, f"{path}/{key}/{index}") for index, entry in enumerate(listed)]
    names = ("additionalItems" if tuple_style else "items", "unevaluatedItems")
    name = next((name for name in names if name in schema), None)
    rest = schema[name] if name is not None else None
    return prefix, None if rest is True else rest, f"{path}/{name}"
