"""A request as the scheduler's contract spells it, and the contract's answers as values of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.flight.choice import Choice
from gateway.flight.flight import Flight
from gateway.flight.result import Cached, Finish, Reason
from gateway.flight.spec import Constraint, GenerateSpec
from gateway.workers.worker import LoadReport
from protos.scheduler.v1 import scheduler_pb2 as pb
from services.common import errors

IDS_PER_FRAME = 32_768

_REASONS = {
    pb.FINISH_REASON_STOP: Reason.STOP,
    pb.FINISH_REASON_LENGTH: Reason.LENGTH,
    pb.FINISH_REASON_ABORT: Reason.ABORT,
    pb.FINISH_REASON_GRAMMAR_END: Reason.STOP,
    pb.FINISH_REASON_ERROR: Reason.ERROR,
    pb.FINISH_REASON_INTERRUPTED: Reason.INTERRUPTED,
}


def submit_frames(flight: Flight, choices: list[Choice], handle_base: int, waited_ms: int) -> Iterator[pb.ToWorker]:
    """The request for the given unfinished choices, split so that no frame is too large."""
    spec = flight.spec
    ids = flight.prompt_ids
    submit = pb.Submit(
        handle_base=handle_base,
        request_id=spec.request_id,
        attempt=flight.attempt,
        prompt=pb.Prompt(
            token_ids=ids[:IDS_PER_FRAME],
            total_tokens=len(ids),
            cache_salt=spec.cache_salt.encode(),
            extra_key=spec.extra_key,
        ),
        sampling=_sampling(spec),
        stops=_stops(flight),
        output=_output(spec),
        waited_ms=waited_ms,
        model=spec.model,
        tenant=spec.tenant,
        traceparent=spec.traceparent,
        session=spec.routing_key,
    )
    for choice in choices:
        submit.choices.add(index=choice.index, seed=choice.seed, prior_output_ids=choice.output_ids, prior_retractions=choice.retractions)
    _optional(submit, flight)
    yield pb.ToWorker(submit=[submit])
    for offset in range(IDS_PER_FRAME, len(ids), IDS_PER_FRAME):
        part = pb.PromptPart(handle_base=handle_base, offset=offset, token_ids=ids[offset : offset + IDS_PER_FRAME])
        yield pb.ToWorker(prompt=[part])


def _optional(submit: pb.Submit, flight: Flight) -> None:
    spec = flight.spec
    if spec.priority is not None:
        submit.priority = spec.priority
    remaining = flight.remaining_s()
    if remaining is not None:
        submit.deadline_ms = max(1, int(remaining * 1000))
    if spec.constraint is not None:
        submit.constraint.CopyFrom(_constraint(spec.constraint, flight))
    if flight.identity is not None and flight.begun and flight.identity.weight_version:
        submit.require_weight_version = flight.identity.weight_version


def _sampling(spec: GenerateSpec) -> pb.Sampling:
    s = spec.sampling
    return pb.Sampling(
        temperature=s.temperature,
        top_p=s.top_p,
        top_k=s.top_k,
        min_p=s.min_p,
        frequency_penalty=s.frequency_penalty,
        presence_penalty=s.presence_penalty,
        repetition_penalty=s.repetition_penalty,
        logit_bias=[pb.LogitBias(token_id=token, bias=bias) for token, bias in s.logit_bias],
        custom_logit_processor=s.processor.name if s.processor is not None else "",
        custom_params=s.processor.params if s.processor is not None else "",
    )


def _stops(flight: Flight) -> pb.Stops:
    s = flight.spec.stops
    return pb.Stops(
        max_new_tokens=flight.max_new_tokens,
        min_new_tokens=min(s.min_new_tokens, flight.max_new_tokens),
        token_ids=s.token_ids,
        strings=s.strings,
        regexes=s.regexes,
        ignore_eos=s.ignore_eos,
        skip_special_tokens=s.skip_special_tokens,
        keep_special_ids=flight.keep_special_ids,
        spaces_between_special=s.spaces_between_special,
    )


def _output(spec: GenerateSpec) -> pb.Output:
    output = pb.Output(stream_interval=spec.stream_interval)
    wanted = spec.logprobs
    if wanted is not None:
        if wanted.output:
            output.top_logprobs = wanted.top
        output.logprob_ids.extend(wanted.ids)
        output.scale = pb.LOGPROB_SCALE_TEMPERED if wanted.tempered else pb.LOGPROB_SCALE_RAW
        if wanted.prompt_from is not None:
            output.top_logprobs = wanted.top
            output.prompt_logprobs_from = wanted.prompt_from
    return output


def _constraint(constraint: Constraint, flight: Flight) -> pb.Constraint:
    made = pb.Constraint(begin_after_ids=flight.begin_after_ids, opening_ids=flight.opening_ids)
    setattr(made, f"lenient_{constraint.kind}" if constraint.lenient else constraint.kind, constraint.text)
    return made


def load(report: pb.Load) -> LoadReport:
    """A worker's load report."""
    return LoadReport(
        running=report.running,
        waiting=report.waiting,
        waiting_prefill_tokens=report.waiting_prefill_tokens,
        kv_used_tokens=report.kv_used_tokens,
        kv_total_tokens=report.kv_total_tokens,
        kv_evictable_tokens=report.kv_evictable_tokens,
        prefill_tokens_per_s=report.prefill_tokens_per_s,
        generation_tokens_per_s=report.generation_tokens_per_s,
        decode_step_s=report.decode_step_ms / 1000,
        last_turn_age_s=report.last_turn_age_ms / 1000,
        max_running=report.limits.max_running_requests,
        chunk_tokens=report.limits.chunked_prefill_size,
    )


def cached(tiers: pb.TierTokens) -> Cached:
    """Cached prompt tokens by tier."""
    return Cached(tiers.device, tiers.host, tiers.storage)


def finish(final: pb.Final, spec: GenerateSpec) -> Finish:
    """A worker's last word on a choice. An out-of-range stop index is no match."""
    matched: int | str | None = None
    which = final.WhichOneof("matched")
    if which == "token_id":
        matched = final.token_id
    elif which == "stop_index" and final.stop_index < len(spec.stops.strings):
        matched = spec.stops.strings[final.stop_index]
    elif which == "regex_index" and final.regex_index < len(spec.stops.regexes):
        matched = spec.stops.regexes[final.regex_index]
    return Finish(
        reason=_REASONS.get(final.reason, Reason.ERROR),
        matched=matched,
        keep_bytes=final.keep_bytes if final.HasField("keep_bytes") else None,
        completion_tokens=final.end_position,
        cached=cached(final.usage.cached),
        queue_s=final.timings.queue_ns / 1e9,
        retractions=final.retractions,
        message=final.error.message,
        error=_error(final.error, spec) if final.HasField("error") else None,
    )


def _error(message: Any, spec: GenerateSpec) -> errors.HeadraceError:
    """The worker's error; what it says about the constraint or the processor is about the client's field that held it."""
    error, constraint, processor = errors.from_proto(message), spec.constraint, spec.sampling.processor
    fields: dict[str, str] = {}
    if constraint is not None and constraint.field:
        fields[constraint.kind] = constraint.field
    if processor is not None:
        fields |= {"sampling.custom_logit_processor": processor.name_field, "sampling.custom_params": processor.params_field}
    if error.field in fields:
        error.message = error.message.replace(error.field, fields[error.field], 1)
        error.field = fields[error.field]
    return error
