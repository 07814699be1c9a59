"""How many tokens of an answer were thought."""

from __future__ import annotations

from gateway.flight.choice import Choice
from gateway.parsing.plan import AnswerParser, ParsePlan


def reasoning_tokens(choice: Choice, plan: ParsePlan, parser: AnswerParser | None) -> int:
    """Tokens up to and with the end of the thought; by the share of the text where the end is no token of its own."""
    if plan.reasoning is None or parser is None:
        return 0
    total = len(choice.output_ids)
    if plan.separate_reasoning and parser.thinking:
        return total
    if plan.separate_reasoning and not parser.thought:
        return 0
    end = choice.flight.thought_end_id
    if end is not None and end in choice.output_ids:
        return choice.output_ids.index(end) + 1
    text = choice.full_text()
    at = text.find(plan.reasoning.end)
    if at < 0:
        return total if choice.flight.thought_at == "inside" else 0
    return min(total, round(total * (at + len(plan.reasoning.end)) / max(1, len(text))))
