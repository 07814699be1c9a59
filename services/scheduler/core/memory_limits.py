"""What happens when a forward pass does not fit into device memory: the work is put back and done in smaller portions."""

from __future__ import annotations

from services.scheduler.core import lifecycle
from services.scheduler.core.log_lines import MemoryLine
from services.scheduler.core.messages import ErrorCode, ErrorInfo, FinishReason
from services.scheduler.core.state import State
from services.scheduler.core.step import Step

_LEAST_CHUNK = 16


def shrink(state: State, step: Step) -> None:
    """Send the step's choices back and lower the bound that made it large. Nothing of the step took place.

    A step of one choice and the least chunk cannot be made smaller: that choice ends with an error.
    """
    state.counters.out_of_memory += 1
    rows = [row for row in step.plan.rows.tolist() if state.batch.choices[row] is not None]
    if _lower_bound(state, step):
        for row in rows:
            lifecycle.send_back(state, state.batch.choice(row))
        state.counters.retractions += len(rows)
        return
    for row in rows:
        error = ErrorInfo(ErrorCode.INTERNAL, "Out of device memory: not even the smallest step of this request fits")
        lifecycle.end(state, state.batch.choice(row), FinishReason.ERROR, error=error, keep_cache=False)


def _lower_bound(state: State, step: Step) -> bool:
    """Halve the chunk size after a prefill, else the number of running choices; false if both are at their least."""
    tokens, choices = step.plan.input_ids.size, step.plan.rows.size
    if step.parts and tokens > max(_LEAST_CHUNK, state.cache.page_size):
        state.step_bound = max(tokens // 2, _LEAST_CHUNK, state.cache.page_size)
        if not 0 <= state.chunk_bound <= state.step_bound:
            state.chunk_bound = state.step_bound
        _say(state, "chunked_prefill_size", tokens, state.step_bound)
        return True
    if choices > 1:
        old = state.running_bound
        state.running_bound = max(choices // 2, 1)
        _say(state, "max_running_requests", old, state.running_bound)
        return True
    return False


def _say(state: State, what: str, old: int, new: int) -> None:
    state.decide("shrink", None, what, old=old, new=new)
    state.log(MemoryLine(what, old, new))
