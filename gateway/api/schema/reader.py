"""Typed reads of a JSON object. null counts as absent; booleans are not numbers; errors name the field."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from services.common.errors import InvalidRequest

_SHOWN = 60


def shown(value: Any) -> str:
    """A value as an error message quotes it, short."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


class Fields:
    """One JSON object of a request. `where` is put before field names, as in "sampling_params.temperature"."""

    def __init__(self, values: Mapping[str, Any], where: str = "") -> None:
        self.values = values
        self.where = where

    def path(self, name: str) -> str:
        """The field's name as errors give it."""
        return f"{self.where}.{name}" if self.where else name

    def bad(self, name: str, wanted: str) -> InvalidRequest:
        """The error for a value that is not what was wanted."""
        return InvalidRequest(f"{self.path(name)} must be {wanted}, not {shown(self.values.get(name))}", field=self.path(name))

    def has(self, name: str) -> bool:
        """Is the field there and not null?"""
        return self.values.get(name) is not None

    def number(self, name: str, default: float, low: float, high: float, *, open_low: bool = False) -> float:
        """A finite number in [low, high], or (low, high] with `open_low`."""
        value = self.values.get(name)
        if value is None:
            return default
        span = f"a number in {'(' if open_low else '['}{low:g}, {high:g}]"
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.bad(name, span)
        if value < low or value > high or (open_low and value == low):
            raise self.bad(name, span)
        return float(value)

    def integer(self, name: str, low: int, high: int) -> int | None:
        """A whole number in [low, high], or None where absent. 3.0 counts as 3."""
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.bad(name, f"a whole number in [{low}, {high}]")
        return value

    def boolean(self, name: str, default: bool) -> bool:
        """true or false."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.bad(name, "true or false")
        return value

    def string(self, name: str, default: str = "", *, longest: int = 1_000_000) -> str:
        """A string of at most `longest` characters."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.bad(name, "a string")
        if len(value) > longest:
            raise InvalidRequest(f"{self.path(name)} may have {longest} characters, it has {len(value)}", field=self.path(name))
        self.check_text(name, value)
        return value

    def check_text(self, name: str, value: str) -> str:
        """Refuse lone surrogates: they are not text and cannot be sent on."""
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"{self.path(name)} has a lone surrogate at character {error.start}", field=self.path(name)) from error
        return value

    def object(self, name: str) -> Mapping[str, Any] | None:
        """A JSON object, or None where absent."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, dict):
            raise self.bad(name, "an object")
        return value

    def array(self, name: str) -> Sequence[Any] | None:
        """A JSON array, or None where absent."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, list):
            raise self.bad(name, "an array")
        return value

    def strings(self, name: str, *, most: int, longest: int) -> tuple[str, ...]:
        """A string or an array of strings, none of them empty. null and [] mean none."""
        value = self.values.get(name)
        if value is None:
            return ()
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise self.bad(name, "a string or an array of strings")
        if len(items) > most:
            raise InvalidRequest(f"{self.path(name)} may have {most} entries, it has {len(items)}", field=self.path(name))
        for item in items:
            if not item:
                raise InvalidRequest(f"{self.path(name)} may not have an empty string", field=self.path(name))
            if len(item) > longest:
                message = f"an entry of {self.path(name)} may have {longest} characters, one has {len(item)}"
                raise InvalidRequest(message, field=self.path(name))
            self.check_text(name, item)
        return tuple(items)

    def token_ids(self, name: str, *, most: int) -> tuple[int, ...]:
        """An array of token ids, or one id."""
        value = self.values.get(name)
        if value is None:
            return ()
        return ids_of(value if isinstance(value, list) else [value], self.path(name), most=most)


def ids_of(items: Sequence[Any], field: str, *, most: int = 1 << 31) -> tuple[int, ...]:
    """Check that a list holds token ids: whole numbers that are not negative and fit 32 bits."""
    if len(items) > most:
        raise InvalidRequest(f"{field} may have {most} entries, it has {len(items)}", field=field)
    for place, item in enumerate(items):
        if type(item) is not int or not 0 <= item < 1 << 32:
            raise InvalidRequest(f"{field}[{place}] must be a token id, not {shown(item)}", field=field)
    return tuple(items)
