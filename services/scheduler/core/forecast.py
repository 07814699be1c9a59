"""Memory that running choices are expected to need."""

from __future__ import annotations

import numpy as np

from services.scheduler.core.choice import Choice
from services.scheduler.core.state import State


def output_estimate(state: State, choice: Choice) -> int:
    """Tokens a choice that starts now is taken to produce: what is left of its budget, clipped."""
    return min(choice.max_new - choice.out_len, state.config.clip_max_new_tokens_estimation)


def running_reservation(state: State) -> float:
    """Tokens held back for running choices: clipped remaining budget times the ratio, or all of it where the end is certain."""
    batch = state.batch
    remaining = batch.remaining(state.config.clip_max_new_tokens_estimation)
    shares = np.where(batch.certain[batch.rows], 1.0, state.ratio.value)
    return float(remaining @ shares)


def chunked_reservation(state: State) -> int:
    """Tokens the partly planned choice still needs: the rest of its prompt and its output in full."""
    choice = state.chunked
    if choice is None:
        return 0
    return choice.fill.size - int(state.batch.scheduled[choice.row]) + output_estimate(state, choice)
