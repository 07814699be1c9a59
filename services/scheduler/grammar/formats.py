"""String formats as patterns: every text these patterns allow is valid, though not every valid text is allowed.

A date never is a 29th of February, an address never has an empty label: what a grammar cannot know is left out.
"""

from __future__ import annotations

_DAY = "(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8])"
_DATE = f"[1-9][0-9]{{3}}-({_DAY})"
_TIME = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
_HOST = f"{_LABEL}(\\.{_LABEL}){{0,6}}"
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_H16 = "[0-9A-Fa-f]{1,4}"
_SECONDS = "[0-9]{1,9}S"
_MINUTES = f"[0-9]{{1,9}}M({_SECONDS})?"
_HOURS = f"[0-9]{{1,9}}H({_MINUTES})?"
_CLOCK = f"T({_HOURS}|{_MINUTES}|{_SECONDS})"
_DAYS = "[0-9]{1,9}D"
_MONTHS = f"[0-9]{{1,9}}M({_DAYS})?"
_YEARS = f"[0-9]{{1,9}}Y({_MONTHS})?"
_PATH = "[A-Za-z0-9._~!$&'()*+,;=:@-]"

FORMATS: dict[str, str] = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": f"P([0-9]{{1,9}}W|({_YEARS}|{_MONTHS}|{_DAYS})({_CLOCK})?|{_CLOCK})",
    "email": f"[A-Za-z0-9_%+-]{{1,16}}(\\.[A-Za-z0-9_%+-]{{1,16}}){{0,2}}@{_LABEL}(\\.{_LABEL}){{1,3}}",
    "hostname": _HOST,
    "ipv4": f"{_BYTE}(\\.{_BYTE}){{3}}",
    "ipv6": f"({_H16}:){{7}}{_H16}|::({_H16}(:{_H16}){{0,5}})?|{_H16}::({_H16}(:{_H16}){{0,4}})?|{_H16}:{_H16}::({_H16}(:{_H16}){{0,3}})?",
    "uuid": "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}",
    "uri": f"[A-Za-z][A-Za-z0-9+.-]{{0,15}}://{_HOST}(:[1-9][0-9]{{0,3}})?(/{_PATH}*)*(\\?{_PATH}*)?(#{_PATH}*)?",
}
"""Format name -> pattern of the whole string."""
