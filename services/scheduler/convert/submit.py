"""A Submit of the contract becomes a request of the scheduler, or an error that names the field."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from protos.scheduler.v1 import scheduler_pb2 as pb
from services.common.errors import ContextLengthExceeded, FailedPrecondition, InvalidRequest, NotFound
from services.scheduler.convert.limits import (
    MAX_CHOICES,
    MAX_LOGIT_BIASES,
    MAX_LOGPROB_IDS,
    MAX_STOP_IDS,
    MAX_TOP_LOGPROBS,
    RequestBounds,
)
from services.scheduler.core.messages import ChoiceSpec, Namespace, StopSpec, SubmitRequest, TextRules
from services.scheduler.core.plan import SamplingSpec
from services.scheduler.grammar.desk import GrammarDesk
from services.scheduler.logit_processors.registry import NO_PROCESSORS, LogitProcessors
from services.scheduler.text_rules import bind
from services.scheduler.text_stops import TextStops

_NS_PER_MS = 1_000_000


class SubmitConverter:
    """Checks and converts submits; past it every value is valid. Raises HeadraceError."""

    def __init__(
        self, bounds: RequestBounds, text_stops: TextStops, grammars: GrammarDesk, processors: LogitProcessors = NO_PROCESSORS
    ) -> None:
        self._bounds = bounds
        self._processors = processors
        self._grammars = grammars
        self._text_stops = text_stops

    def check_early(self, submit: pb.Submit) -> None:
        """What can be said before the whole prompt is here."""
        bounds = self._bounds
        if submit.model and submit.model not in bounds.model_names:
            raise NotFound(f"model {submit.model!r} is not served here", field="model", code="model_not_found")
        wanted = submit.require_weight_version
        if submit.HasField("require_weight_version") and wanted != bounds.weight_version:
            raise FailedPrecondition(
                f"weight version {wanted!r} is wanted, {bounds.weight_version!r} is loaded",
                field="require_weight_version",
                safe_to_retry=True,
            )
        for name in ("adapter", "transfer"):
            if submit.HasField(name):
                raise InvalidRequest(f"{name} is not offered by this worker", field=name)
        if submit.prompt.media:
            raise InvalidRequest("media is not offered by this worker", field="prompt.media")
        if not 1 <= len(submit.choices) <= MAX_CHOICES:
            raise InvalidRequest(f"1 to {MAX_CHOICES} choices are possible, not {len(submit.choices)}", field="choices")
        total = prompt_tokens(submit)
        if total == 0:
            raise InvalidRequest("the prompt is empty", field="prompt")
        if total >= bounds.context_tokens:
            raise ContextLengthExceeded(
                f"the prompt has {total} tokens, which leaves no room for output in the context of {bounds.context_tokens} tokens"
            )

    async def settle(self, submit: pb.Submit) -> None:
        """Give a constraint a moment to turn out invalid, so that it can be refused instead of accepted."""
        await self._grammars.settle(*_constraint(submit), submit.stops.keep_special_ids)

    def convert(self, submit: pb.Submit, prompt_ids: npt.NDArray[np.int64], handle_base: int, now_ns: int) -> SubmitRequest:
        """The whole request. `handle_base`: what the scheduler shall call the first choice."""
        _check_ids(prompt_ids, self._bounds.vocab_size, "prompt.token_ids")
        ids = prompt_ids.astype(np.int32)
        stops = self._stops(submit.stops)
        rules = _text_rules(submit)
        stop_matcher, grammar = bind(rules, ids, self._text_stops, self._grammars)
        return SubmitRequest(
            request_id=submit.request_id,
            attempt=submit.attempt,
            prompt_ids=ids,
            choices=tuple(self._choice(choice, index, handle_base + index) for index, choice in enumerate(submit.choices)),
            sampling=self._sampling(submit),
            stops=stops,
            priority=submit.priority if submit.HasField("priority") else None,
            deadline_ns=now_ns + submit.deadline_ms * _NS_PER_MS if submit.HasField("deadline_ms") else None,
            received_ns=now_ns,
            arrival_ns=now_ns - submit.waited_ms * _NS_PER_MS,
            tenant=submit.tenant,
            namespace=Namespace(cache_salt=submit.prompt.cache_salt, extra_key=submit.prompt.extra_key),
            session=submit.session,
            prompt_logprobs_from=self._prompt_logprobs_from(submit.output, prompt_ids.size),
            stream_interval=max(1, submit.output.stream_interval),
            grammar=grammar,
            stop_matcher=stop_matcher,
            texts=rules,
        )

    def _choice(self, choice: pb.Choice, at: int, handle: int) -> ChoiceSpec:
        prior = np.array(choice.prior_output_ids, np.int64)
        _check_ids(prior, self._bounds.vocab_size, f"choices[{at}].prior_output_ids")
        return ChoiceSpec(
            handle=handle,
            index=choice.index,
            seed=choice.seed,
            prior_output_ids=prior.astype(np.int32),
            prior_retractions=choice.prior_retractions,
        )

    def _sampling(self, submit: pb.Submit) -> SamplingSpec:
        sampling, output, given = submit.sampling, submit.output, submit.sampling.HasField
        top_k = sampling.top_k if given("top_k") else -1
        if top_k < -1 or top_k == 0:
            raise InvalidRequest(f"sampling.top_k must be -1 (all) or at least 1, not {top_k}", field="sampling.top_k")
        wanted = output.HasField("top_logprobs")
        if output.top_logprobs > MAX_TOP_LOGPROBS:
            raise InvalidRequest(
                f"output.top_logprobs is at most {MAX_TOP_LOGPROBS}, not {output.top_logprobs}", field="output.top_logprobs"
            )
        return SamplingSpec(
            temperature=_within("temperature", sampling.temperature if given("temperature") else 1.0, 0.0, math.inf),
            top_p=_within("top_p", sampling.top_p if given("top_p") else 1.0, 0.0, 1.0, above=True),
            top_k=top_k,
            min_p=_within("min_p", sampling.min_p, 0.0, 1.0),
            frequency_penalty=_within("frequency_penalty", sampling.frequency_penalty, -2.0, 2.0),
            presence_penalty=_within("presence_penalty", sampling.presence_penalty, -2.0, 2.0),
            repetition_penalty=_within(
                "repetition_penalty", sampling.repetition_penalty if given("repetition_penalty") else 1.0, 0.0, 2.0, above=True
            ),
            logit_bias=self._logit_bias(sampling.logit_bias),
            logprobs=wanted or bool(output.logprob_ids),
            top_logprobs=output.top_logprobs,
            logprob_ids=self._ids(output.logprob_ids, MAX_LOGPROB_IDS, "output.logprob_ids"),
            scaled_logprobs=output.scale == pb.LOGPROB_SCALE_TEMPERED,
            processor=self._processors.check(sampling.custom_logit_processor, sampling.custom_params, self._bounds.vocab_size),
        )

    def _logit_bias(self, biases: Sequence[pb.LogitBias]) -> tuple[tuple[int, float], ...]:
        self._ids([bias.token_id for bias in biases], MAX_LOGIT_BIASES, "sampling.logit_bias")
        if len({bias.token_id for bias in biases}) < len(biases):
            raise InvalidRequest("sampling.logit_bias names a token twice", field="sampling.logit_bias")
        return tuple((bias.token_id, _within("logit_bias", bias.bias, -100.0, 100.0)) for bias in biases)

    def _stops(self, stops: pb.Stops) -> StopSpec:
        if stops.min_new_tokens > stops.max_new_tokens:
            raise InvalidRequest(
                f"stops.min_new_tokens {stops.min_new_tokens} exceeds max_new_tokens {stops.max_new_tokens}", field="stops.min_new_tokens"
            )
        return StopSpec(
            max_new_tokens=stops.max_new_tokens,
            min_new_tokens=stops.min_new_tokens,
            token_ids=self._ids(stops.token_ids, MAX_STOP_IDS, "stops.token_ids"),
            ignore_eos=stops.ignore_eos,
        )

    def _prompt_logprobs_from(self, output: pb.Output, prompt_len: int) -> int | None:
        if not output.HasField("prompt_logprobs_from"):
            return None
        start = output.prompt_logprobs_from
        if start == -1:
            return None
        if not 0 <= start < prompt_len:
            raise InvalidRequest(
                f"output.prompt_logprobs_from must be within the prompt of {prompt_len} tokens, not {start}",
                field="output.prompt_logprobs_from",
            )
        return start

    def _ids(self, ids: Sequence[int], most: int, field: str) -> tuple[int, ...]:
        if len(ids) > most:
            raise InvalidRequest(f"{field} has {len(ids)} entries, at most {most} are allowed", field=field)
        _check_ids(np.array(ids, np.int64), self._bounds.vocab_size, field)
        return tuple(ids)


def prompt_tokens(submit: pb.Submit) -> int:
    """Length of the whole prompt, of which this message may hold only the beginning."""
    return max(submit.prompt.total_tokens, len(submit.prompt.token_ids))


def _text_rules(submit: pb.Submit) -> TextRules:
    stops, given = submit.stops, submit.HasField("constraint")
    return TextRules(
        strings=tuple(stops.strings),
        regexes=tuple(stops.regexes),
        skip_special=stops.skip_special_tokens,
        keep_special_ids=tuple(stops.keep_special_ids),
        spaces_between_special=stops.spaces_between_special,
        constraint=_constraint(submit) if given else None,
        begin_after_ids=tuple(submit.constraint.begin_after_ids) if given else (),
        opening_ids=tuple(submit.constraint.opening_ids) if given else (),
    )


def _constraint(submit: pb.Submit) -> tuple[str, str]:
    """Kind and text of a request's constraint."""
    kind = submit.constraint.WhichOneof("grammar")
    if kind is None:
        raise InvalidRequest("the constraint says nothing", field="constraint")
    return str(kind), str(getattr(submit.constraint, kind))


def _within(name: str, value: float, low: float, high: float, above: bool = False) -> float:
    """`value` if it is finite and within [low, high] (or (low, high] with `above`)."""
    if not math.isfinite(value) or value < low or value > high or (above and value == low):
        least = f"above {low:g}" if above else f"at least {low:g}"
        most = "" if math.isinf(high) else f" and at most {high:g}"
        raise InvalidRequest(f"sampling.{name} must be {least}{most}, not {value:g}", field=f"sampling.{name}")
    return value


def _check_ids(ids: npt.NDArray[Any], vocab_size: int, field: str) -> None:
    if ids.size and (int(ids.max()) >= vocab_size or int(ids.min()) < 0):
        wrong = int(ids[(ids >= vocab_size) | (ids < 0)][0])
        raise InvalidRequest(f"{field}: token id {wrong} is outside the vocabulary of {vocab_size}", field=field)
