"""What every backend checks before it compiles: sizes, regex dialect, schema keywords, readings of an EBNF."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from services.scheduler.grammar.ambiguity import ambiguity
from services.scheduler.grammar.interface import CompiledGrammar, GrammarFailure, GrammarKind, GrammarSpec, InvalidGrammar
from services.scheduler.grammar.regex_text import BadRegex, parse_whole, write
from services.scheduler.grammar.schema.lenient import lenient_form
from services.scheduler.grammar.schema.normal_form import normal_form
from services.scheduler.grammar.schema.problem import SchemaProblem
from services.scheduler.grammar.schema.profile import Profile
from services.scheduler.grammar.structural_tag import BadTag, triggered_tags, with_checked_parts

MAX_TEXT = 256 * 1024


def checked(spec: GrammarSpec, profile: Profile) -> GrammarSpec:
    """The spec in the form a backend with this profile compiles. Raises InvalidGrammar."""
    if not spec.text.strip():
        raise InvalidGrammar("empty", spec.kind)
    if len(spec.text) > MAX_TEXT:
        raise InvalidGrammar(f"{len(spec.text)} characters, at most {MAX_TEXT} are allowed", spec.kind)
    form = lenient_form if spec.lenient else normal_form
    try:
        match spec.kind:
            case GrammarKind.JSON_SCHEMA:
                text = form(spec.text, profile)
            case GrammarKind.REGEX:
                text = _regex(spec.text)
            case GrammarKind.EBNF:
                text = spec.text
                if (why := ambiguity(text)) is not None:
                    raise InvalidGrammar(why, spec.kind)
            case GrammarKind.STRUCTURAL_TAG:
                text = triggered_tags(with_checked_parts(spec.text, lambda schema: form(schema, profile), _regex))
    except (SchemaProblem, BadRegex, BadTag) as error:
        raise InvalidGrammar(str(error), spec.kind) from error
    return replace(spec, text=text)


def satisfiable(grammar: CompiledGrammar, words: int, kind: GrammarKind) -> CompiledGrammar:
    """The grammar, unless it allows nothing at all, as a schema that refers to itself in a circle. Raises InvalidGrammar."""
    mask = np.zeros(words, np.int32)
    start = grammar.matcher()
    try:
        start.fill_mask(mask)
    except GrammarFailure as failure:
        raise InvalidGrammar(str(failure), kind) from failure
    if not mask.any() and not start.finished:
        raise InvalidGrammar("nothing can satisfy it", kind)
    return grammar


def _regex(pattern: str) -> str:
    return write(parse_whole(pattern))
