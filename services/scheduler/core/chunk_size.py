"""How many prompt tokens one step may compute, and how many decode steps follow it."""

from __future__ import annotations

from services.scheduler.core.state import UNBOUNDED, State
from services.scheduler.core.step import Step

_LEAST = 16
_UNKNOWN = 64  # tokens beside running choices while no prefill has shown how fast the device is
_LEAST_SHARE = 4  # of a chunk, that decode tokens leave to the prompt
_LEAST_GAP = 1.5  # decode steps: where these alone exceed the target, prompts may still add half of one


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

    One between two chunks of a prompt, and with an ITL target after every prefill. A mixed step has its own.
    """
    config = state.config
    paced = config.itl_target_ms is not None and not config.enable_mixed_chunk
    stalls = not step.decode_rows and (state.chunked is not None or paced)
    return max(config.prefill_decode_interval, int(stalls))


def decodes_left(state: State, owed: int) -> int:
    """Decode steps still owed after one; the first that nothing forced begins a row of continuous ones."""
    return owed - 1 if owed else state.config.num_continuous_decode_steps - 1


def _beside_decodes(state: State, target_ms: float) -> int:
    """Between two tokens of a running choice lies one mixed step, or a chunk and a decode step, which share the target."""
    decode_ms = state.counters.decode_step_ms
    gap_ms = max(target_ms, _LEAST_GAP * decode_ms)
    budget_ms = gap_ms if state.config.enable_mixed_chunk else gap_ms - decode_ms
    rate = state.pace.tokens_per_ms
    return max(int(rate * budget_ms), _LEAST) if rate else _UNKNOWN
