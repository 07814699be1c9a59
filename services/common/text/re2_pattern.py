"""Expressions of RE2, which takes time linear in the text."""

from __future__ import annotations

from typing import Any

import re2


class BadPattern(ValueError):
    """RE2 does not take it; the message says why."""


def compiled(pattern: str, *, max_bytes: int | None = None) -> Any:
    """The expression; `max_bytes` bounds the memory its automata take. Raises BadPattern, without a word on standard error."""
    options = re2.Options()
    options.log_errors = False
    if max_bytes is not None:
        options.max_mem = max_bytes
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        raise BadPattern(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from error
