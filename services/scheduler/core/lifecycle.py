"""How a choice leaves its row and how it ends. Every choice passes through `end` exactly once."""

from __future__ import annotations

from services.scheduler.core.choice import Choice
from services.scheduler.core.messages import ErrorCode, ErrorInfo, Final, FinishReason, Matched, Timings, Usage
from services.scheduler.core.state import State


def end(
    state: State,
    choice: Choice,
    reason: FinishReason,
    *,
    matched: Matched | None = None,
    keep_bytes: int | None = None,
    error: ErrorInfo | None = None,
    cancel_cause: int = 0,
    keep_cache: bool = True,
) -> None:
    """Say the last word about a choice and take back all it holds.

    What was computed goes into the prefix cache unless `keep_cache` is false (its values cannot be trusted).
    """
    del state.live[choice.handle]
    if choice.row:
        state.output.add_held_tokens(state.batch, choice.row)
        leave_row(state, choice, keep_cache=keep_cache)
    else:
        state.queue.remove(choice)
    state.output.finals.append(_final(choice, state.clock(), reason, matched, keep_bytes, error, cancel_cause))
    state.counters.count_final(reason.name.lower())
    state.decide("finish", choice, reason.name.lower(), output_tokens=choice.out_len)


def refuse(state: State, choice: Choice, error: ErrorInfo) -> None:
    """The final of a choice that was never accepted."""
    state.output.finals.append(_final(choice, state.clock(), FinishReason.ERROR, None, None, error, 0))
    state.counters.count_rejected(error.code.value)
    state.decide("reject", choice, error.message)


def send_back(state: State, choice: Choice) -> None:
    """Take the row from a running choice and let it wait again; nothing of it enters the prefix cache."""
    state.output.add_held_tokens(state.batch, choice.row)
    lost = state.batch.computed(choice.row).size
    state.counters.retracted_input_tokens += min(lost, choice.prompt_len)
    state.counters.retracted_output_tokens += max(0, lost - choice.prompt_len)
    leave_row(state, choice, keep_cache=False)
    choice.retractions += 1
    state.queue.add(choice)


def leave_row(state: State, choice: Choice, *, keep_cache: bool) -> None:
    """Free the row and its slots; with `keep_cache` the computed tokens go into the prefix cache."""
    row = choice.row
    computed = state.batch.computed(row) if keep_cache else None
    if computed is not None and state.config.strip_thinking_cache:
        computed = computed[: choice.prompt_len]
    state.cache.release(row, computed, choice.priority, choice.request.session)
    state.batch.vacate(row)
    state.changes.release(row)
    if state.chunked is choice:
        state.chunked = None


def out_of_pool() -> ErrorInfo:
    return ErrorInfo(ErrorCode.INTERNAL, "Out of memory even after retracting all other requests: the KV pool is too small for this one")


def _final(
    choice: Choice,
    now: int,
    reason: FinishReason,
    matched: Matched | None,
    keep_bytes: int | None,
    error: ErrorInfo | None,
    cancel_cause: int,
) -> Final:
    def waited_until(point: int | None) -> int | None:
        return None if point is None else max(point - choice.received_ns, 0)

    started, first = choice.started_ns, choice.first_token_ns
    return Final(
        handle=choice.handle,
        reason=reason,
        end_position=choice.out_len,
        usage=Usage(choice.prompt_len, choice.out_len, choice.cached_tokens or 0),
        timings=Timings(
            queue_ns=waited_until(started),
            first_token_ns=waited_until(first),
            prefill_ns=first - started if first is not None and started is not None else None,
            total_ns=max(now - choice.received_ns, 0),
        ),
        retractions=choice.retractions,
        matched=matched,
        keep_bytes=keep_bytes,
        error=error,
        cancel_cause=cancel_cause,
    )
