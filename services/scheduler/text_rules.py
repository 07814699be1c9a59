"""From the plain values of a request to its stop matcher and its grammar: in the engine's process, whichever that is."""

from __future__ import annotations

from collections.abc import Callable

from services.scheduler.core.messages import TextRules
from services.scheduler.core.plan import IntArray
from services.scheduler.core.protocols import Grammar, StopMatcher
from services.scheduler.grammar.desk import GrammarDesk
from services.scheduler.text_stops import TextStops


def bind(
    rules: TextRules, prompt_ids: IntArray, text_stops: TextStops, grammars: GrammarDesk
) -> tuple[Callable[[], StopMatcher] | None, Callable[[], Grammar] | None]:
    """Makers of one matcher and one grammar per choice; None where there is nothing to match or follow. Raises InvalidRequest."""
    grammar = None
    if rules.constraint is not None:
        grammar = grammars.factory(*rules.constraint, rules.begin_after_ids, rules.keep_special_ids, rules.opening_ids)
    matcher = text_stops.factory(
        rules.strings,
        rules.regexes,
        prompt_ids,
        skip_special=rules.skip_special,
        keep_special_ids=frozenset(rules.keep_special_ids),
        spaces_between_special=rules.spaces_between_special,
    )
    return matcher, grammar
