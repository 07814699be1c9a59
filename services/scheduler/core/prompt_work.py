"""How much prompt a worker has before it, for those who choose between workers."""

from __future__ import annotations

from itertools import islice

from services.scheduler.core.policy import uncached
from services.scheduler.core.state import State
from services.scheduler.core.step import Step

_LOOKED_UP = 16  # waiting choices whose cached prefix is looked up; those behind them are taken to be like them


def tokens_ahead(state: State, in_flight: Step | None) -> int:
    """Prompt tokens to be computed before the last waiting choice has its first token, without cached ones.

    Counts what waits, the rest of a prompt that is partly planned, and the prompts of the step that runs.
    """
    ahead = in_flight.prompt_tokens if in_flight is not None else 0
    if state.chunked is not None:
        ahead += state.chunked.fill.size - int(state.batch.scheduled[state.chunked.row])
    if len(state.queue):
        first = list(islice(state.queue, _LOOKED_UP))
        missing = sum(uncached(state, choice) for choice in first) / sum(choice.fill.size for choice in first)
        ahead += round(state.queue.tokens * missing)
    return ahead
