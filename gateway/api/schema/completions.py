"""`/v1/completions`: text or token ids, one prompt or several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.api.schema.envelope import read_envelope
from gateway.api.schema.limits import Defaults
from gateway.api.schema.logit_processor import with_processor
from gateway.api.schema.logprobs import completion_logprobs
from gateway.api.schema.openai_fields import COMPLETION_REFUSED
from gateway.api.schema.reader import Fields, ids_of, shown
from gateway.api.schema.response_format import read_one_grammar
from gateway.api.schema.sampling import read_sampling, read_stops, refuse_unsupported
from gateway.api.schema.schema_check import read_schema_check
from gateway.api.schema.stream_options import StreamOptions, read_stream
from gateway.flight.spec import GenerateSpec, IdsPrompt, Prompt, TextPrompt
from services.common.errors import InvalidRequest

DEFAULT_MAX_TOKENS = 16


@dataclass(frozen=True, slots=True)
class CompletionCall:
    """A parsed completions request; choice index = prompt place * n + choice."""

    specs: tuple[GenerateSpec, ...]
    n: int
    echo: bool
    logprobs: int | None
    stream: StreamOptions
    model: str


def read_completion(body: Mapping[str, Any], defaults: Defaults) -> CompletionCall:
    """Check a body. Raises InvalidRequest naming the field."""
    fields = Fields(body)
    limits = defaults.limits
    n = fields.integer("n", 1, limits.max_choices) or 1
    _check_best_of(fields, n)
    refuse_unsupported(fields, COMPLETION_REFUSED)
    stream = read_stream(fields, defaults)
    echo = fields.boolean("echo", False)
    envelope = read_envelope(fields, defaults)
    prompts = _prompts(fields, limits.max_batch)
    if len(prompts) * n > limits.max_batch:
        message = f"{len(prompts)} prompts with n {n} are {len(prompts) * n} choices, the limit is {limits.max_batch}"
        raise InvalidRequest(message, field="n")
    logprobs = completion_logprobs(fields, most=limits.max_logprobs, echo=echo)
    constraint, check = read_schema_check(fields, read_one_grammar(fields, defaults))
    sampling = with_processor(read_sampling(fields, defaults), fields, fields)
    stops = read_stops(fields, defaults, max_names=("max_tokens",), default_max=DEFAULT_MAX_TOKENS)
    specs = tuple(
        GenerateSpec(
            request_id=envelope.request_id if len(prompts) == 1 else f"{envelope.request_id}-{place}",
            model=envelope.model,
            prompt=prompt,
            n=n,
            sampling=sampling,
            stops=stops,
            logprobs=logprobs,
            constraint=constraint,
            check=check,
            stream_interval=envelope.stream_interval,
            priority=envelope.priority,
            extra_key=envelope.extra_key,
            cache_salt=envelope.cache_salt,
            routing_key=envelope.routing_key or fields.string("prompt_cache_key", longest=1024),
            tenant=defaults.tenant,
            traceparent=defaults.traceparent,
            timeout_s=envelope.timeout_s,
        )
        for place, prompt in enumerate(prompts)
    )
    return CompletionCall(specs, n, echo, None if logprobs is None else logprobs.top, stream, envelope.model)


def _check_best_of(fields: Fields, n: int) -> None:
    """best_of equal to n changes nothing; any other value is refused."""
    best_of = fields.integer("best_of", 1, 1 << 20)
    if best_of is not None and best_of != n:
        why = "is less than n" if best_of < n else "more answers than are returned are never generated"
        raise InvalidRequest(f"best_of {best_of} with n {n} is not supported: {why}", field="best_of")


def _prompts(fields: Fields, most: int) -> list[Prompt]:
    value = fields.values.get("prompt")
    special = fields.boolean("add_special_tokens", False) if fields.has("add_special_tokens") else None
    if isinstance(value, str):
        return [_text(fields, value, special)]
    if not isinstance(value, list) or not value:
        raise InvalidRequest(f"prompt must be a string, token ids, or an array of either, not {shown(value)}", field="prompt")
    first = value[0]
    if type(first) is int:
        return [IdsPrompt(ids_of(value, "prompt"))]
    if len(value) > most:
        raise InvalidRequest(f"prompt may have {most} entries, it has {len(value)}", field="prompt")
    if isinstance(first, str):
        return [_text(fields, item, special) for item in value]
    return [_row(item, place) for place, item in enumerate(value)]


def _text(fields: Fields, item: Any, special: bool | None) -> Prompt:
    if not isinstance(item, str):
        raise InvalidRequest(f"prompt mixes strings with {shown(item)}", field="prompt")
    if not item:
        raise InvalidRequest("prompt may not be empty", field="prompt")
    return TextPrompt(fields.check_text("prompt", item), special)


def _row(item: Any, place: int) -> Prompt:
    if not isinstance(item, list) or not item:
        raise InvalidRequest(f"prompt[{place}] must be an array of token ids that is not empty, not {shown(item)}", field="prompt")
    try:
        return IdsPrompt(ids_of(item, f"prompt[{place}]"))
    except InvalidRequest as error:
        raise InvalidRequest(error.message, field="prompt") from error
