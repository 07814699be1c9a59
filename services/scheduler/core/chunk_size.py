"""How many prompt tokens one step may compute."""

from __future__ import annotations

from services.scheduler.core.state import UNBOUNDED, State

_IDLE_FACTOR = 10  # with nobody decoding, a chunk may take this many times the target gap
_LEAST_BUDGET = 0.2  # share of the target that prompts get though decode steps alone take longer
_LEAST = 16
_LEAST_SHARE = 4  # of a chunk, that decode tokens leave to the prompt


def room(state: State, decodes_in_step: int) -> int:
    """Tokens of the next prefill step.

    Fixed chunks: the configured size, shared with the decode tokens of a mixed step. With an ITL target: what the
    device computes within the target, and a multiple of it while nobody waits for a next token.
    """
    rate, least = state.counters.prefill_tokens_per_s, state.cache.page_size
    if state.config.itl_target_ms is None or not rate:
        chunk = state.chunk_bound if state.chunk_bound >= 0 else UNBOUNDED
        wanted = max(chunk - decodes_in_step, chunk // _LEAST_SHARE)
    else:
        wanted = max(int(rate * _budget_ms(state, state.config.itl_target_ms) / 1000), _LEAST)
    return max(min(wanted, state.step_bound), least)


def _budget_ms(state: State, target_ms: float) -> float:
    """Time the next step may spend on prompts: between two tokens of a running choice lie a chunk and a decode step."""
    if not len(state.batch):
        return target_ms * _IDLE_FACTOR
    return max(target_ms - state.counters.decode_step_ms, target_ms * _LEAST_BUDGET)
