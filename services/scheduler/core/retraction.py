"""Sends running choices back to the queue when the next decode step does not fit into the pool."""

from __future__ import annotations

from services.scheduler.core import lifecycle
from services.scheduler.core.choice import Choice
from services.scheduler.core.log_lines import RetractLine
from services.scheduler.core.messages import FinishReason
from services.scheduler.core.state import State


def make_room(state: State) -> None:
    """Retract until every row that goes on decoding has a slot for its next token; nothing may be in flight.

    The choice that is left when nothing else can be retracted is ended with an error instead of being tried for ever.
    """
    retracted = aborted = 0
    while not state.has_room_for(state.batch.decodable()):
        victims = _order(state)
        if len(victims) == 1:
            lifecycle.end(state, victims[0], FinishReason.ABORT, error=lifecycle.out_of_pool())
            aborted += 1
            continue
        victim = victims[0]
        state.decide("retract", victim, "kv_pool", output_tokens=int(state.batch.out_len[victim.row]))
        lifecycle.send_back(state, victim)
        retracted += 1
    if not retracted and not aborted:
        return
    state.counters.retractions += retracted
    old = state.ratio.value
    rows = state.batch.rows
    state.ratio.after_retraction(state.batch.out_len[rows].tolist(), state.batch.max_new[rows].tolist())
    state.log(RetractLine(retracted, aborted, old, state.ratio.value))


def _order(state: State) -> list[Choice]:
    """Who goes first: fewest output tokens, then the longest prompt, as they lose the least work."""
    batch = state.batch
    choices = [batch.choice(row) for row in batch.rows.tolist()]
    if state.chunked is not None:
        choices.append(state.chunked)
    by_priority = state.config.retraction_policy == "priority"
    return sorted(
        choices,
        key=lambda choice: (
            choice.priority if by_priority else 0,
            int(batch.out_len[choice.row]),
            -choice.prompt_len,
            -choice.sequence,
        ),
    )
