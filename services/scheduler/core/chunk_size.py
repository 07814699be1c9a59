"""How many prompt tokens one step may compute, and how many decode steps follow it."""

from __future__ import annotations

from services.scheduler.core.state import State
from services.scheduler.core.step import Step

_UNKNOWN = 64  # tokens beside running choices while no prefill has shown how fast the device is
_LEAST_SHARE = 4  # of a chunk, that decode tokens leave to the prompt
_LEAST_GAP = 1.5  # decode steps: where these alone exceed the target, prompts may still add half of one


def room(state: State, decodes_in_step: int) -> int:
    """Tokens of the next prefill step.

    Fixed chunks: the configured size, shared with the decode tokens of a mixed step. With an ITL target the configured
    size is the most, taken while nobody waits for a next token; else a step has what the device computes within the target.
    """
    most, target = state.prompt_bound.value, state.config.itl_target_ms
    wanted = most
    if target is None and state.chunk_bound >= 0:
        wanted = max(most - decodes_in_step, most // _LEAST_SHARE)
    elif target is not None and len(state.batch):
        wanted = min(most, _beside_decodes(state, target))
    return max(wanted, state.cache.page_size)


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
    pace = state.pace
    budget_ms = max(target_ms, _LEAST_GAP * pace.decode_ms) - pace.decode_ms
    return max(int(budget_ms / pace.token_ms), state.config.least_chunk) if pace.token_ms else _UNKNOWN
