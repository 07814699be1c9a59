"""The stop strings and stop regexes of a request, checked and compiled once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.common.errors import InvalidRequest
from services.common.text.re2_pattern import BadPattern, compiled
from services.common.text.regex_program import MAX_NODES, compile_program
from services.common.text.regex_search import RegexSearch
from services.common.text.regex_syntax import UnsupportedPattern, parse_regex
from services.common.text.stop_strings import StopStrings

MAX_STOPS = 32
MAX_STRING_BYTES = 4096
MAX_REGEX_CHARACTERS = 256


@dataclass(frozen=True, slots=True)
class StopSet:
    """Immutable; shared by all choices of a request."""

    strings: StopStrings | None
    regexes: tuple[RegexSearch, ...]

    def __bool__(self) -> bool:
        return self.strings is not None or bool(self.regexes)


NO_STOPS = StopSet(None, ())


def compile_stops(
    strings: Sequence[str], regexes: Sequence[str] = (), *, strings_field: str = "stop", regexes_field: str = "stop_regex"
) -> StopSet:
    """Check and compile. Raises InvalidRequest naming the field and what is wrong with it."""
    if not strings and not regexes:
        return NO_STOPS
    _check_count(strings, strings_field)
    _check_count(regexes, regexes_field)
    encoded = [_encode(string, f"{strings_field}[{index}]") for index, string in enumerate(strings)]
    searches: list[RegexSearch] = []
    for index, regex in enumerate(regexes):
        room = MAX_NODES - sum(search.size for search in searches)
        searches.append(_compile_regex(regex, f"{regexes_field}[{index}]", room))
    return StopSet(StopStrings(encoded) if encoded else None, tuple(searches))


def _check_count(stops: Sequence[str], field: str) -> None:
    if len(stops) > MAX_STOPS:
        raise InvalidRequest(f"{field}: {len(stops)} entries, at most {MAX_STOPS} are allowed", field=field)


def _encode(string: str, field: str) -> bytes:
    if not string:
        raise InvalidRequest(f"{field}: an empty stop string would match everywhere", field=field)
    try:
        data = string.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{field}: not valid Unicode text", field=field) from error
    if len(data) > MAX_STRING_BYTES:
        raise InvalidRequest(f"{field}: {len(data)} bytes, at most {MAX_STRING_BYTES} are allowed", field=field)
    return data


def _compile_regex(regex: str, field: str, max_nodes: int) -> RegexSearch:
    if len(regex) > MAX_REGEX_CHARACTERS:
        raise InvalidRequest(f"{field}: {len(regex)} characters, at most {MAX_REGEX_CHARACTERS} are allowed", field=field)
    try:
        if compiled(regex).search("") is not None:
            raise InvalidRequest(f"{field}: {regex!r} matches empty text, it would stop before the first token", field=field)
        return RegexSearch(compile_program(parse_regex(regex), max_nodes))
    except BadPattern as error:
        raise InvalidRequest(f"{field}: {regex!r} is not a regular expression RE2 accepts: {error}", field=field) from error
    except (UnsupportedPattern, RecursionError, UnicodeEncodeError) as error:
        reason = str(error) if isinstance(error, UnsupportedPattern) else "nested too deeply or not valid Unicode text"
        raise InvalidRequest(f"{field}: {regex!r}: {reason}", field=field) from error
