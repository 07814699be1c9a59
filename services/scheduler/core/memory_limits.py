"""What happens when a forward pass does not fit into device memory: the work is put back and done in smaller portions."""

from __future__ import annotations

from services.scheduler.core import lifecycle
from services.scheduler.core.log_lines import GrowLine, MemoryLine
from services.scheduler.core.memory_bound import MemoryBound
from services.scheduler.core.messages import ErrorCode, ErrorInfo, FinishReason
from services.scheduler.core.state import State
from services.scheduler.core.step import Step


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


def recover(state: State) -> None:
    """A step fitted into memory: after enough of them, bounds that were lowered grow a little."""
    for what, bound in _bounds(state):
        old = bound.value
        if bound.fitted():
            state.counters.memory_bound_raises += 1
            state.decide("grow", None, what, old=old, new=bound.value)
            state.log(GrowLine(what, old, bound.value))


def _lower_bound(state: State, step: Step) -> bool:
    """Lower the chunk size after a prefill, else the number of running choices; false if both are at their least."""
    sizes = step.prompt_tokens, step.plan.rows.size
    for (what, bound), tried in zip(_bounds(state), sizes, strict=True):
        old = bound.value
        if bound.lower(tried):
            state.decide("shrink", None, what, old=old, new=bound.value)
            state.log(MemoryLine(what, old, bound.value))
            return True
    return False


def _bounds(state: State) -> tuple[tuple[str, MemoryBound], tuple[str, MemoryBound]]:
    return ("chunked_prefill_size", state.prompt_bound), ("max_running_requests", state.places_bound)
