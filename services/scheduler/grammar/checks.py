"""What every backend checks before it compiles: sizes, regex dialect, schema keywords."""

from __future__ import annotations

from services.scheduler.grammar.interface import GrammarKind, GrammarSpec, InvalidGrammar
from services.scheduler.grammar.regex_text import BadRegex, parse_whole, write
from services.scheduler.grammar.schema.normal_form import normal_form
from services.scheduler.grammar.schema.problem import SchemaProblem
from services.scheduler.grammar.schema.profile import Profile
from services.scheduler.grammar.structural_tag import BadTag, with_checked_parts

MAX_TEXT = 256 * 1024


def checked(spec: GrammarSpec, profile: Profile) -> GrammarSpec:
    """The spec in the form a backend with this profile compiles. Raises InvalidGrammar."""
    if not spec.text.strip():
        raise InvalidGrammar("empty", spec.kind)
    if len(spec.text) > MAX_TEXT:
        raise InvalidGrammar(f"{len(spec.text)} characters, at most {MAX_TEXT} are allowed", spec.kind)
    try:
        match spec.kind:
            case GrammarKind.JSON_SCHEMA:
                text = normal_form(spec.text, profile)
            case GrammarKind.REGEX:
                text = _regex(spec.text)
            case GrammarKind.EBNF:
                text = spec.text
            case GrammarKind.STRUCTURAL_TAG:
                text = with_checked_parts(spec.text, lambda schema: normal_form(schema, profile), _regex)
    except (SchemaProblem, BadRegex, BadTag) as error:
        raise InvalidGrammar(str(error), spec.kind) from error
    return GrammarSpec(spec.kind, text)


def _regex(pattern: str) -> str:
    return write(parse_whole(pattern))
