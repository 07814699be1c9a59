"""What the scheduler said becomes messages of the contract, none larger than a frame may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protos.common.v1 import common_pb2
from protos.scheduler.v1 import scheduler_pb2 as pb
from services.common import errors
from services.common.grpc_options import MAX_FRAME_BYTES
from services.scheduler.core.messages import Accepted, ErrorCode, ErrorInfo, Final, PromptLogprobs, Started, TurnOutput, Usage
from services.scheduler.core.plan import RowLogprobs

HANDLE_BITS = 32
_HANDLE_MASK = (1 << HANDLE_BITS) - 1
_BUDGET = MAX_FRAME_BYTES * 3 // 4  # estimates below are generous, framing comes on top
_TOKEN_BYTES = 5
_ROW_BYTES = 18
_SMALL_BYTES = 64
_FINAL_BYTES = 192
_NS_PER_MS = 1_000_000

_ERRORS: dict[ErrorCode, type[errors.HeadraceError]] = {
    ErrorCode.INVALID_REQUEST: errors.InvalidRequest,
    ErrorCode.CONTEXT_LENGTH_EXCEEDED: errors.ContextLengthExceeded,
    ErrorCode.OVERLOADED: errors.Overloaded,
    ErrorCode.UNAVAILABLE: errors.Unavailable,
    ErrorCode.DEADLINE_EXCEEDED: errors.DeadlineExceeded,
    ErrorCode.CANCELLED: errors.Cancelled,
    ErrorCode.INTERNAL: errors.Internal,
}


@dataclass(slots=True)
class _Writer:
    """Fills frames; a full one is set aside and a new one begun."""

    done: list[pb.FromWorker]
    frame: pb.FromWorker
    used: int = 0

    def room(self, size: int) -> pb.FromWorker:
        """The frame to add `size` more bytes to."""
        if self.used and self.used + size > _BUDGET:
            self.done.append(self.frame)
            self.frame, self.used = pb.FromWorker(), 0
        self.used += size
        return self.frame


def frames(output: TurnOutput, scale: dict[int, bool]) -> list[pb.FromWorker]:
    """All of `output`, in the order the contract promises. `scale`: whether a handle's logprobs are tempered."""
    writer = _Writer([], pb.FromWorker())
    for accepted in output.accepted:
        writer.room(_SMALL_BYTES).accepted.append(_accepted(accepted))
    for started in output.started:
        writer.room(_SMALL_BYTES).started.append(_started(started))
    for part in output.prompt_logprobs:
        _add_prompt_logprobs(writer, part, scale.get(part.handle, False))
    if output.tokens.handles:
        _add_step(writer, output, scale)
    for final in output.finals:
        message = final_message(final)
        writer.room(_FINAL_BYTES + len(message.error.message)).final.append(message)
    if writer.used:
        writer.done.append(writer.frame)
    return writer.done


def _add_step(writer: _Writer, output: TurnOutput, scale: dict[int, bool]) -> None:
    """Rows without logprobs go in as whole columns while they fit; others token by token."""
    columns = output.tokens
    whole = len(columns.handles) * _ROW_BYTES + len(columns.token_ids) * _TOKEN_BYTES
    if not columns.logprobs and (whole <= _BUDGET // 2):
        step = writer.room(whole).step
        step.handle.extend([handle & _HANDLE_MASK for handle in columns.handles])
        step.first_position.extend(columns.first_positions)
        step.count.extend(columns.counts)
        step.token_ids.extend(columns.token_ids)
        step.step_id, step.engine_time_ns = max(output.step_id, 0), output.engine_ns
        return
    offset = 0
    for row, handle in enumerate(columns.handles):
        logprobs = columns.logprobs[row] if columns.logprobs else None
        ids = columns.token_ids[offset : offset + columns.counts[row]]
        offset += len(ids)
        _add_row(writer, output, handle, columns.first_positions[row], ids, logprobs, scale.get(handle, False))


def _add_row(
    writer: _Writer, output: TurnOutput, handle: int, first: int, ids: Sequence[int], logprobs: Sequence[RowLogprobs] | None, tempered: bool
) -> None:
    current: pb.FromWorker | None = None
    for at, token in enumerate(ids):
        entry = logprobs[at] if logprobs is not None else None
        size = _TOKEN_BYTES + (_logprob_bytes(entry) if entry is not None else 0)
        frame = writer.room(size + (_ROW_BYTES if current is None else 0))
        step = frame.step
        if frame is not current:
            step.step_id, step.engine_time_ns = max(output.step_id, 0), output.engine_ns
            step.handle.append(handle & _HANDLE_MASK)
            step.first_position.append(first + at)
            step.count.append(0)
            current = frame
        step.count[-1] += 1
        step.token_ids.append(token)
        if entry is not None:
            _add_logprobs(step.logprobs, len(step.handle) - 1, entry, tempered)


def _add_prompt_logprobs(writer: _Writer, part: PromptLogprobs, tempered: bool) -> None:
    handle, current = part.handle & _HANDLE_MASK, writer.room(_SMALL_BYTES)
    message = current.prompt_logprobs.add(handle=handle, first_position=part.first_position)
    for at, (token, entry) in enumerate(zip(part.token_ids.tolist(), part.logprobs, strict=True)):
        frame = writer.room(_TOKEN_BYTES + _logprob_bytes(entry))
        if frame is not current:
            message, current = frame.prompt_logprobs.add(handle=handle, first_position=part.first_position + at), frame
        message.token_ids.append(token)
        _add_logprobs(message.logprobs, 0, entry, tempered)
    message.last = part.last


def _add_logprobs(target: pb.Logprobs, row: int, entry: RowLogprobs, tempered: bool) -> None:
    target.scale = pb.LOGPROB_SCALE_TEMPERED if tempered else pb.LOGPROB_SCALE_RAW
    target.row.append(row)
    target.chosen.append(entry.chosen)
    target.top_count.append(len(entry.top_ids))
    target.top_ids.extend(entry.top_ids)
    target.top.extend(entry.top)
    target.id_count.append(len(entry.ids))
    target.ids.extend(entry.ids)


def _logprob_bytes(entry: RowLogprobs) -> int:
    return 12 + 9 * len(entry.top_ids) + 4 * len(entry.ids)


def _accepted(accepted: Accepted) -> pb.Accepted:
    message = pb.Accepted(handle=accepted.handle & _HANDLE_MASK, queue_position=accepted.queue_position)
    if accepted.expected_wait_ns is not None:
        message.expected_wait_ms = accepted.expected_wait_ns // _NS_PER_MS
    return message


def _started(started: Started) -> pb.Started:
    return pb.Started(
        handle=started.handle & _HANDLE_MASK,
        prompt_tokens=started.prompt_tokens,
        cached=pb.TierTokens(device=started.cached_tokens),
        queue_ns=max(0, started.queue_ns),
        cache_limit_reason=pb.CacheLimit.Name(int(started.cache_limit)),
    )


def final_message(final: Final) -> pb.Final:
    """The contract's last word on a choice."""
    message = pb.Final(
        handle=final.handle & _HANDLE_MASK,
        reason=pb.FinishReason.Name(int(final.reason)),
        end_position=final.end_position,
        usage=_usage(final.usage),
        timings=common_pb2.Timings(
            queue_ns=final.timings.queue_ns or 0,
            first_token_ns=final.timings.first_token_ns or 0,
            total_ns=final.timings.total_ns,
            prefill_ns=final.timings.prefill_ns or 0,
        ),
        retractions=final.retractions,
    )
    matched = final.matched
    if matched is not None:
        for name in ("token_id", "stop_index", "regex_index"):
            if (value := getattr(matched, name)) is not None:
                setattr(message, name, value)
    if final.keep_bytes is not None:
        message.keep_bytes = final.keep_bytes
    if final.error is not None:
        message.error.CopyFrom(error_from_info(final.error).to_proto())
    return message


def _usage(usage: Usage) -> pb.Usage:
    return pb.Usage(
        prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens, cached=pb.TierTokens(device=usage.cached_tokens)
    )


def error_from_info(info: ErrorInfo) -> errors.HeadraceError:
    """The exception for an error of the scheduler."""
    kind = _ERRORS[info.code]
    made = kind.__new__(kind)
    errors.HeadraceError.__init__(
        made,
        info.message,
        field=info.field,
        retry_after_ms=info.retry_after_ms,
        safe_to_retry=info.safe_to_retry,
        safe_to_resume=info.safe_to_resume,
        code="context_length_exceeded" if info.code is ErrorCode.CONTEXT_LENGTH_EXCEEDED else None,
    )
    return made


def error_final(handle: int, error: errors.HeadraceError) -> pb.Final:
    """The final of a choice that never reached the scheduler."""
    return pb.Final(handle=handle & _HANDLE_MASK, reason=pb.FINISH_REASON_ERROR, error=error.to_proto())
