"""The one way to refuse a schema: where, and why."""

from __future__ import annotations

from typing import Any, NoReturn

Schema = dict[str, Any]


class SchemaProblem(ValueError):
    """A schema that is wrong or would not be enforced; the message begins with the place."""


class NotEnforced(SchemaProblem):
    """A schema that is right, and has a keyword the backend would ignore. path: of the schema; keyword: its name."""

    def __init__(self, message: str, path: str, keyword: str) -> None:
        super().__init__(message)
        self.path = path
        self.keyword = keyword


def refuse(path: str, reason: str) -> NoReturn:
    """Refuse the schema at a place such as `#/properties/a`."""
    raise SchemaProblem(f"{path}: {reason}")


def not_enforced(path: str, keyword: str, backend: str, why: str = "") -> NoReturn:
    """Refuse a keyword that the backend would ignore. keyword: its name, and what makes it so after a space."""
    message = f"{path}: {keyword} is not enforced by {backend}" + (f": {why}" if why else "")
    raise NotEnforced(message, path, keyword.split(" ", 1)[0])


def whole_number(schema: Schema, keyword: str, path: str, most: int) -> int | None:
    """A keyword whose value is a count; None if it is absent."""
    value = schema.get(keyword)
    if value is None and keyword not in schema:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        refuse(path, f"{keyword} must be a whole number, not {value!r}")
    if value > most:
        refuse(path, f"{keyword} is {value}, at most {most} is allowed")
    return value
