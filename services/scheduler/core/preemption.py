"""Running choices of much lower priority give way to a waiting one that does not fit."""

from __future__ import annotations

from services.scheduler.core import forecast
from services.scheduler.core.choice import Choice
from services.scheduler.core.state import State


def victims(state: State, candidate: Choice) -> list[Choice]:
    """Who must go so that `candidate` fits: nobody if it fits already, or if those it may displace are not enough.

    The lowest priority goes first, of equal ones the latest. The difference must exceed the configured threshold.
    """
    batch, cache = state.batch, state.cache
    uncached = candidate.fill.size - cache.prefixes.peek(candidate.request.namespace, candidate.fill[: candidate.match_limit])
    needed = uncached + forecast.output_estimate(state, candidate) + cache.page_size
    room = cache.available_tokens - forecast.running_reservation(state) - forecast.chunked_reservation(state)
    places = min(state.running_bound - state.occupied, cache.rows.free)
    if needed <= room and places > 0:
        return []
    threshold = state.config.priority_scheduling_preemption_threshold
    weaker = [choice for choice in map(batch.choice, batch.rows.tolist()) if candidate.priority - choice.priority > threshold]
    weaker.sort(key=lambda choice: (choice.priority, -choice.arrival_ns, -choice.sequence))
    chosen: list[Choice] = []
    for choice in weaker:
        chosen.append(choice)
        room += int(cache.rows.allocated[choice.row]) + _reservation(state, choice)
        places += 1
        if needed <= room and places > 0:
            return chosen
    return []


def _reservation(state: State, choice: Choice) -> float:
    row = choice.row
    remaining = int(state.batch.max_new[row] - state.batch.out_len[row])
    clipped = min(max(remaining, 0), state.config.clip_max_new_tokens_estimation)
    return clipped * (1.0 if state.batch.certain[row] else state.ratio.value)
