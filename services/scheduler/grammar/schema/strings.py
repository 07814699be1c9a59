"""String keywords: length, pattern, format."""

from __future__ import annotations

from services.common.text.regex_syntax import Node
from services.scheduler.grammar.formats import FORMATS
from services.scheduler.grammar.regex_text import BadRegex, lengths, parse_search, parse_whole, without_escapes, write
from services.scheduler.grammar.schema.problem import Schema, not_enforced, refuse, whole_number
from services.scheduler.grammar.schema.profile import Profile

_MOST_CHARACTERS = 1_000_000


def string_keywords(schema: Schema, path: str, profile: Profile) -> Schema:
    """The string keywords of a schema, as the backend takes them."""
    least, most = whole_number(schema, "minLength", path, _MOST_CHARACTERS), whole_number(schema, "maxLength", path, _MOST_CHARACTERS)
    if most is not None and least is not None and least > most:
        refuse(path, f"minLength {least} is greater than maxLength {most}")
    tree = _pattern(schema, path, profile)
    out: Schema = {}
    if tree is not None:
        out["pattern"] = f"^({write(tree)})$"
        shortest, longest = lengths(tree)
        least = None if least is not None and least <= shortest else least
        most = None if most is not None and longest is not None and longest <= most else most
        if (least or most is not None) and not profile.length_with_pattern:
            keyword = "minLength" if least else "maxLength"
            both = "pattern" if "pattern" in schema else "format"
            not_enforced(path, f"{keyword} beside {both}", profile.name, "put the length into the pattern")
    if least:
        out["minLength"] = least
    if most is not None:
        out["maxLength"] = most
    return out


def _pattern(schema: Schema, path: str, profile: Profile) -> Node | None:
    if "format" in schema and "pattern" in schema:
        not_enforced(path, "format beside pattern", profile.name)
    if "format" in schema:
        name = schema["format"]
        if name not in FORMATS:
            not_enforced(path, f"format {name!r}", profile.name, f"the formats enforced are {', '.join(FORMATS)}")
        return parse_whole(FORMATS[name])
    if "pattern" not in schema:
        return None
    if not isinstance(schema["pattern"], str):
        refuse(path, "pattern must be a string")
    return _searched(schema["pattern"], path, profile)


def canonical_pattern(pattern: str, path: str, profile: Profile) -> str:
    """An anchored pattern of all texts in which `pattern` matches."""
    return f"^({write(_searched(pattern, path, profile))})$"


def _searched(pattern: str, path: str, profile: Profile) -> Node:
    try:
        tree = parse_search(pattern)
    except BadRegex as error:
        refuse(path, f"pattern {error}")
    if not profile.string_escapes:
        raw = without_escapes(tree)
        if raw is None:
            not_enforced(path, f"pattern {pattern!r}", profile.name, "it needs characters that JSON writes as escape sequences")
        tree = raw
    return tree
