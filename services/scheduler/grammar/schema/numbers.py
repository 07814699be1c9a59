"""Number keywords: bounds and multiples."""

from __future__ import annotations

import math
from typing import Any

from services.scheduler.grammar.schema.problem import Schema, not_enforced, refuse
from services.scheduler.grammar.schema.profile import Profile

_LARGEST = 10**15
_LARGEST_MULTIPLE = 1000


def number_keywords(schema: Schema, types: set[str], path: str, profile: Profile) -> Schema:
    """The number keywords of a schema, as the backend takes them; bounds of integers become whole and inclusive."""
    whole = "number" not in types
    low, low_open = _bound(schema, "minimum", "exclusiveMinimum", path, stricter=max)
    high, high_open = _bound(schema, "maximum", "exclusiveMaximum", path, stricter=min)
    if whole and low is not None:
        low, low_open = math.floor(low) + 1 if low_open else math.ceil(low), False
    if whole and high is not None:
        high, high_open = math.ceil(high) - 1 if high_open else math.floor(high), False
    if low is not None and high is not None and (low > high or (low == high and (low_open or high_open))):
        refuse(path, "the bounds leave no number")
    out: Schema = {}
    if low is not None:
        out["exclusiveMinimum" if low_open else "minimum"] = low
    if high is not None:
        out["exclusiveMaximum" if high_open else "maximum"] = high
    if "multipleOf" in schema:
        out["multipleOf"] = _multiple(schema, whole, bool(out), path, profile)
    return out


def _bound(schema: Schema, closed: str, opened: str, path: str, *, stricter: Any) -> tuple[Any, bool]:
    """(bound, excludes itself); of two given ones the stricter."""
    values = {key: _number(schema, key, path) for key in (closed, opened) if key in schema}
    if not values:
        return None, False
    bound = stricter(values.values())
    return bound, values.get(opened) == bound


def _number(schema: Schema, keyword: str, path: str) -> int | float:
    value = schema[keyword]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        refuse(path, f"{keyword} must be a number, not {value!r}")
    if abs(value) > _LARGEST:
        refuse(path, f"{keyword} is {value!r}, beyond ±{_LARGEST:.0e} bounds are not supported")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _multiple(schema: Schema, whole: bool, bounded: bool, path: str, profile: Profile) -> int | float:
    value = _number(schema, "multipleOf", path)
    if value <= 0:
        refuse(path, f"multipleOf must be greater than 0, not {value!r}")
    if profile.free_multiples:
        return value
    if not whole or not isinstance(value, int):
        not_enforced(path, "multipleOf", profile.name, "only whole multiples of type integer are")
    if bounded:
        not_enforced(path, "multipleOf beside a bound", profile.name)
    if value > _LARGEST_MULTIPLE:
        refuse(path, f"multipleOf is {value}, at most {_LARGEST_MULTIPLE} is supported")
    return value
