"""How many prompt tokens one step may compute, and how many decode steps follow it."""

from __future__ import annotations

from services.scheduler.core.state import UNBOUNDED, State
from services.scheduler.core.step import Step

_LEAST_BUDGET = 0.2  # share of the target that prompts get though decode steps alone take longer
_LEAST = 16
_UNKNOWN = 64  # tokens beside running choices while no prefill has shown how fast the device is
_LEAST_SHARE = 4  # of a chunk, that decode tokens leave to the prompt


def room(state: State, decodes_in_step: int) -> int:
    """Tokens of the next prefill step.

    Fixed chunks: the configured size, shared with the decode tokens of a mixed step. With an ITL target the configured
    size is the most, taken while nobody waits for a next token; else a step has what the device computes within the target.
    """
    most = state.chunk_bound if state.chunk_bound >= 0 else UNBOUNDED
    target = state.config.itl_target_ms
    if target is None:
        wanted = max(most - decodes_in_step, most // _LEAST_SHARE)
    elif not len(state.batch):
        wanted = most
    else:
        wanted = min(most, _beside_decodes(state, target))
    return max(min(wanted, state.step_bound), state.cache.page_size)


def decodes_owed(state: State, step: Step) -> int:
    """Decode steps between this prefill step and the next, so that a long prompt, or many prompts, stall nobody.

    Fixed chunks: one between two chunks of a prompt. With an ITL target one after every prefill. A mixed step has its own.
    """
    stalls = not step.decode_rows and (state.chunked is not None or state.config.itl_target_ms is not None)
    return max(state.config.prefill_decode_interval, int(stalls))


def _beside_decodes(state: State, target_ms: float) -> int:
    """Between two tokens of a running choice lie a chunk and a decode step, which share the target."""
    rate = state.counters.prefill_tokens_per_s
    budget_ms = max(target_ms - state.counters.decode_step_ms, target_ms * _LEAST_BUDGET)
    return max(int(rate * budget_ms / 1000), _LEAST) if rate else _UNKNOWN
