"""String formats as they are checked. Every check takes time linear in the text."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from datetime import date
from typing import Any

from services.common.text.re2_pattern import compiled

_TIME = r"([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?([zZ]|[+-]([01]\d|2[0-3]):[0-5]\d)"
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_CLOCK = r"T(\d+H(\d+M(\d+S)?)?|\d+M(\d+S)?|\d+S)"
_DAYS = rf"(\d+Y(\d+M(\d+D)?)?|\d+M(\d+D)?|\d+D)({_CLOCK})?"
_URI_CHARACTER = r"([A-Za-z0-9._~!$&'()*+,;=:@/?\[\]-]|%[0-9A-Fa-f]{2})"
_REFERENCE = rf"{_URI_CHARACTER}*(#{_URI_CHARACTER}*)?"
_POINTER = r"(/([^/~]|~[01])*)*"
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"

_PATTERNS = {
    "time": _TIME,
    "duration": rf"P({_DAYS}|{_CLOCK}|\d+W)",
    "email": rf'({_ATOM}(\.{_ATOM})*|"([^"\\[:cntrl:]]|\\.)*")@{_LABEL}(\.{_LABEL})*',
    "hostname": rf"{_LABEL}(\.{_LABEL})*",
    "uuid": "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}",
    "uri": rf"[A-Za-z][A-Za-z0-9+.-]*:{_REFERENCE}",
    "uri-reference": _REFERENCE,
    "json-pointer": _POINTER,
    "relative-json-pointer": rf"(0|[1-9]\d*)(#|{_POINTER})",
}
_MOST_HOST_CHARACTERS = 253
_MOST_BYTES = 8 << 20  # of memory for one expression


def expression_of(pattern: str) -> Any:
    """The expression. Raises ValueError for one that RE2 does not take."""
    return compiled(pattern, max_bytes=_MOST_BYTES)


def _matching(pattern: str) -> Callable[[str], bool]:
    expression = expression_of(rf"\A(?:{pattern})\z")
    return lambda text: expression.search(text) is not None


def _is_date(text: str) -> bool:
    if not _matches_date(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _address(kind: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            kind(text)
        except ValueError:
            return False
        return "%" not in text

    return check


def _is_regex(text: str) -> bool:
    try:
        expression_of(text)
    except ValueError:
        return False
    return True


_matches_date = _matching(r"\d{4}-\d{2}-\d{2}")


def checks() -> dict[str, Callable[[str], bool]]:
    """Format name -> whether a text has it."""
    made = {name: _matching(pattern) for name, pattern in _PATTERNS.items()}
    host, time = made["hostname"], made["time"]
    made["hostname"] = lambda text: len(text) <= _MOST_HOST_CHARACTERS and host(text)
    made["date"] = _is_date
    made["date-time"] = lambda text: _is_date(text[:10]) and text[10:11] in ("T", "t", " ") and time(text[11:])
    made["ipv4"] = _address(ipaddress.IPv4Address)
    made["ipv6"] = _address(ipaddress.IPv6Address)
    made["regex"] = _is_regex
    return made
