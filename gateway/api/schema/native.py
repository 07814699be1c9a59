"""`/generate`: one prompt or several, with sampling parameters for all or for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.api.schema.envelope import Envelope, read_envelope, read_rid
from gateway.api.schema.limits import Defaults
from gateway.api.schema.logit_processor import with_processor
from gateway.api.schema.logprobs import native_logprobs
from gateway.api.schema.reader import Fields, ids_of
from gateway.api.schema.sampling import REFUSED, read_constraint, read_sampling, read_stops, refuse_unsupported
from gateway.api.schema.schema_check import read_schema_check
from gateway.flight.spec import GenerateSpec, IdsPrompt, Prompt, TextPrompt
from services.common.errors import InvalidRequest

DEFAULT_MAX_NEW_TOKENS = 128

_PER_PROMPT = (
    *("return_logprob", "logprob_start_len", "top_logprobs_num", "token_ids_logprob"),
    *("extra_key", "cache_salt", "custom_logit_processor"),
)


@dataclass(frozen=True, slots=True)
class NativeCall:
    """A parsed `/generate`. batch: the answer is an array, even for one prompt."""

    specs: tuple[GenerateSpec, ...]
    batch: bool
    stream: bool
    text_in_logprobs: bool


def read_native(body: Mapping[str, Any], defaults: Defaults) -> NativeCall:
    """Check a body. Raises InvalidRequest naming the field."""
    fields = Fields(body)
    refuse_unsupported(fields, REFUSED)
    prompts, batch, field = _prompts(fields, defaults.limits.max_batch)
    envelope = read_envelope(Fields({**body, "rid": None}), defaults)
    rids = _rids(body.get("rid"), len(prompts), batch, envelope.request_id)
    params = _params(fields, len(prompts), batch)
    pieces = fields.boolean("return_text_in_logprobs", False)
    specs = tuple(
        _spec(Fields(_at(body, place, batch)), params[place], prompt, rids[place], envelope, defaults, field)
        for place, prompt in enumerate(prompts)
    )
    return NativeCall(specs, batch, fields.boolean("stream", False), pieces)


def _at(body: Mapping[str, Any], place: int, batch: bool) -> Mapping[str, Any]:
    """The body as one prompt of a batch sees it: lists of per-prompt values are taken apart."""
    if not batch:
        return body
    taken = dict(body)
    for name in _PER_PROMPT:
        value = body.get(name)
        if isinstance(value, list) and (name != "token_ids_logprob" or (value and not isinstance(value[0], int))):
            if place >= len(value):
                raise InvalidRequest(f"{name} has {len(value)} entries, one per prompt is needed", field=name)
            taken[name] = value[place]
    return taken


def _spec(
    fields: Fields,
    params: Fields,
    prompt: Prompt,
    rid: str,
    envelope: Envelope,
    defaults: Defaults,
    field: str,
) -> GenerateSpec:
    limits = defaults.limits
    logprobs = native_logprobs(fields, most=limits.max_logprobs)
    refuse_unsupported(params, REFUSED)
    interval = params.integer("stream_interval", 1, 1 << 20)
    constraint, check = read_schema_check(params, read_constraint(params, defaults))
    return GenerateSpec(
        request_id=rid,
        model=envelope.model,
        prompt=prompt,
        n=params.integer("n", 1, limits.max_choices) or 1,
        sampling=with_processor(read_sampling(params, defaults), fields, params),
        stops=read_stops(params, defaults, max_names=("max_new_tokens", "max_tokens"), default_max=DEFAULT_MAX_NEW_TOKENS),
        logprobs=logprobs,
        constraint=constraint,
        check=check,
        stream_interval=interval or envelope.stream_interval,
        priority=envelope.priority,
        extra_key=fields.string("extra_key", longest=1024),
        cache_salt=fields.string("cache_salt", longest=1024) + defaults.cache_salt,
        routing_key=envelope.routing_key,
        tenant=defaults.tenant,
        traceparent=defaults.traceparent,
        timeout_s=envelope.timeout_s,
        prompt_field=field,
    )


def _prompts(fields: Fields, most: int) -> tuple[list[Prompt], bool, str]:
    text, ids = fields.values.get("text"), fields.values.get("input_ids")
    if (text is None) == (ids is None):
        raise InvalidRequest("exactly one of text and input_ids is needed", field="text" if ids is None else "input_ids")
    if text is not None:
        batch = isinstance(text, list)
        texts = _bounded(text if batch else [text], "text", most)
        return [TextPrompt(_text(fields, item, "text")) for item in texts], batch, "text"
    if not isinstance(ids, list) or not ids:
        raise fields.bad("input_ids", "an array of token ids that is not empty")
    batch = isinstance(ids[0], list)
    rows = _bounded(ids if batch else [ids], "input_ids", most)
    return [IdsPrompt(_ids(row, "input_ids")) for row in rows], batch, "input_ids"


def _bounded(items: Sequence[Any], field: str, most: int) -> Sequence[Any]:
    if not items:
        raise InvalidRequest(f"{field} may not be empty", field=field)
    if len(items) > most:
        raise InvalidRequest(f"{field} may have {most} prompts, it has {len(items)}", field=field)
    return items


def _text(fields: Fields, item: Any, field: str) -> str:
    if not isinstance(item, str):
        raise fields.bad(field, "a string or an array of strings")
    if not item:
        raise InvalidRequest(f"{field} may not be empty", field=field)
    return fields.check_text(field, item)


def _ids(row: Any, field: str) -> tuple[int, ...]:
    if not isinstance(row, list) or not row:
        raise InvalidRequest(f"{field} must hold arrays of token ids that are not empty", field=field)
    return ids_of(row, field)


def _rids(value: Any, count: int, batch: bool, base: str) -> list[str]:
    if isinstance(value, list):
        if not batch:
            raise InvalidRequest("rid must be a string for a single prompt", field="rid")
        if len(value) != count:
            raise InvalidRequest(f"rid has {len(value)} entries, the batch has {count} prompts", field="rid")
        rids = [read_rid(item) for item in value]
        if len(set(rids)) != count:
            raise InvalidRequest("rid has the same id twice", field="rid")
        return rids
    if value is not None and batch and count > 1:
        raise InvalidRequest(f"rid must be an array of {count} ids for a batch of {count} prompts", field="rid")
    given = read_rid(value) or base
    return [given] if count == 1 else [f"{base}-{place}" for place in range(count)]


def _params(fields: Fields, count: int, batch: bool) -> list[Fields]:
    value = fields.values.get("sampling_params")
    if isinstance(value, list) and batch:
        if len(value) != count or not all(isinstance(item, dict) for item in value):
            raise fields.bad("sampling_params", f"an object or an array of {count} objects")
        return [Fields(item, "sampling_params") for item in value]
    return [Fields(fields.object("sampling_params") or {}, "sampling_params")] * count
