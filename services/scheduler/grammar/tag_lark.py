"""Structural tags as a Lark grammar, for llguidance, which has none of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from services.scheduler.grammar.structural_tag import BadTag

_ANY_TEXT = r"/(.|\n)*/"


class TagLark:
    """Writes one grammar. `json_options` go into every JSON schema."""

    def __init__(self, json_options: Mapping[str, Any]) -> None:
        self._json_options = dict(json_options)
        self._rules: list[str] = []

    def grammar(self, tag: Mapping[str, Any]) -> str:
        """The grammar of a tag in today's spelling. Raises BadTag for a format that has no counterpart."""
        start = self._expression(tag.get("format"))
        return "\n".join(["%llguidance {}", f"start: {start}", *self._rules]) + "\n"

    def _rule(self, body: str, attributes: str = "") -> str:
        name = f"r{len(self._rules)}"
        self._rules.append(f"{name}{attributes}: {body}")
        return name

    def _expression(self, given: Any) -> str:
        if not isinstance(given, dict):
            raise BadTag("every format is an object with a type")
        kind = given.get("type")
        try:
            match kind:
                case "const_string":
                    return _text(given["value"])
                case "json_schema":
                    schema = given["json_schema"]
                    with_options = {**(schema if isinstance(schema, dict) else {}), "x-guidance": self._json_options}
                    return self._rule("%json " + json.dumps(with_options, ensure_ascii=False))
                case "regex":
                    return self._rule(f"/{given['pattern']}/")
                case "any_text" if not given.get("excludes"):
                    return self._rule(_ANY_TEXT)
                case "sequence":
                    return self._rule(" ".join(map(self._expression, given["elements"])) or '""')
                case "or":
                    return self._rule(" | ".join(map(self._expression, given["elements"])))
                case "optional" | "star" | "plus":
                    sign = {"optional": "?", "star": "*", "plus": "+"}[kind]
                    return self._rule(f"{self._rule(self._expression(given['content']))}{sign}")
                case "tag":
                    return self._rule(self._tag(given, given["begin"]))
                case "tags_with_separator":
                    return self._separated(given)
                case "triggered_tags" if not given.get("excludes"):
                    return self._triggered(given)
        except (KeyError, TypeError, AttributeError) as error:
            raise BadTag(f"{kind} lacks a part or has a wrong one: {error}") from error
        raise BadTag(f"llguidance has no counterpart of the format {kind!r} with {sorted(given)}")

    def _tag(self, tag: Mapping[str, Any], begin: str) -> str:
        ends = tag["end"] if isinstance(tag["end"], list) else [tag["end"]]
        end = self._rule(" | ".join(map(_text, ends)))
        return f"{_text(begin)} {self._expression(tag['content'])} {end}"

    def _separated(self, given: Mapping[str, Any]) -> str:
        one = self._rule(" | ".join(self._expression(tag) for tag in given["tags"]))
        more = "" if given.get("stop_after_first") else f" ({_text(given['separator'])} {one})*"
        return self._rule(f"{one}{more}" if given.get("at_least_one") else f"({one}{more})?")

    def _triggered(self, given: Mapping[str, Any]) -> str:
        """Free text, in which a trigger must be followed by one of its tags."""
        found = []
        for trigger, tags in _by_trigger(given["triggers"], given["tags"]):
            lexeme = self._rule(f"{_ANY_TEXT} {_text(trigger)}", "[lazy]")
            choice = self._rule(" | ".join(self._tag(tag, tag["begin"].removeprefix(trigger)) for tag in tags))
            found.append(f"{lexeme} {choice}")
        one, rest = self._rule(" | ".join(found)), self._rule(_ANY_TEXT)
        if given.get("stop_after_first"):
            return self._rule(one if given.get("at_least_one") else f"{one} | {rest}")
        return self._rule(f"{one}{'+' if given.get('at_least_one') else '*'} {rest}")


def _by_trigger(triggers: Sequence[str], tags: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for tag in tags:
        trigger = next((one for one in triggers if one and tag["begin"].startswith(one)), None)
        if trigger is None:
            raise BadTag(f"no trigger begins {tag['begin']!r}")
        groups.setdefault(trigger, []).append(tag)
    return list(groups.items())


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
