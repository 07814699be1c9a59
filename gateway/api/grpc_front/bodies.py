"""Messages of the gRPC door as the JSON bodies that the REST doors check: one set of rules for both."""

from __future__ import annotations

import json
from typing import Any

from protos.gateway.v1 import gateway_pb2 as pb
from services.common.errors import InvalidRequest

_OPTIONAL = (
    "max_new_tokens",
    "min_new_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "n",
    "seed",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "stream_interval",
)
_LISTS = ("stop", "stop_token_ids", "stop_regex")
_FLAGS = ("ignore_eos", "no_stop_trim")


def sampling_body(params: pb.SamplingParams) -> dict[str, Any]:
    """Sampling parameters that were given."""
    body: dict[str, Any] = {name: getattr(params, name) for name in _OPTIONAL if params.HasField(name)}
    body |= {name: list(getattr(params, name)) for name in _LISTS if getattr(params, name)}
    body |= {name: True for name in _FLAGS if getattr(params, name)}
    if params.logit_bias:
        body["logit_bias"] = {str(token): bias for token, bias in params.logit_bias.items()}
    if params.custom_logit_processor:
        body["custom_logit_processor"] = params.custom_logit_processor
    if params.custom_params_json:
        body["custom_params"] = _parsed(params.custom_params_json, "custom_params_json")
    if params.schema_check:
        body["schema_check"] = params.schema_check
    grammar = params.WhichOneof("grammar")
    if grammar is not None:
        body[grammar] = getattr(params, grammar)
    return body


def generate_body(request: pb.GenerateRequest) -> dict[str, Any]:
    """The body of `/generate` that asks for the same."""
    body: dict[str, Any] = {
        "model": request.model,
        "sampling_params": sampling_body(request.sampling),
        "stream": request.stream,
        "rid": request.request_id or None,
        "extra_key": request.extra_key,
        "cache_salt": request.cache_salt,
        "routing_key": request.routing_key,
        "lora_path": request.lora_path,
        **_logprobs_body(request.logprobs),
    }
    which = request.WhichOneof("prompt")
    if which == "text":
        body["text"] = request.text
    elif which == "input_ids":
        body["input_ids"] = list(request.input_ids.token_ids)
    if request.HasField("priority"):
        body["priority"] = request.priority
    return body


def _logprobs_body(wanted: pb.LogprobParams) -> dict[str, Any]:
    body: dict[str, Any] = {"return_logprob": wanted.enabled}
    if wanted.top:
        body["top_logprobs_num"] = wanted.top
    if wanted.token_ids:
        body["token_ids_logprob"] = list(wanted.token_ids)
    if wanted.HasField("prompt_from"):
        body["logprob_start_len"] = wanted.prompt_from
    if wanted.tempered:
        body["tempered_logprobs"] = True
    return body


def chat_body(request: pb.ChatRequest) -> dict[str, Any]:
    """The body of `/v1/chat/completions` that asks for the same."""
    sampling = sampling_body(request.sampling)
    if "max_new_tokens" in sampling:
        sampling["max_completion_tokens"] = sampling.pop("max_new_tokens")
    if "min_new_tokens" in sampling:
        sampling["min_tokens"] = sampling.pop("min_new_tokens")
    body: dict[str, Any] = {
        **sampling,
        "model": request.model,
        "messages": [_message(message, place) for place, message in enumerate(request.messages)],
        "stream": request.stream,
        "rid": request.request_id or None,
        "extra_key": request.extra_key,
        "cache_salt": request.cache_salt,
        "routing_key": request.routing_key,
    }
    if request.HasField("priority"):
        body["priority"] = request.priority
    if request.HasField("separate_reasoning"):
        body["separate_reasoning"] = request.separate_reasoning
    if request.logprobs.enabled:
        body |= {"logprobs": True, "top_logprobs": request.logprobs.top}
    for name, text in (
        ("tools", request.tools_json),
        ("tool_choice", request.tool_choice_json),
        ("chat_template_kwargs", request.template_kwargs_json),
    ):
        if text:
            body[name] = _parsed(text, name)
    return body


def _message(message: pb.ChatMessage, place: int) -> dict[str, Any]:
    made: dict[str, Any] = {"role": message.role, "content": message.content}
    for name in ("name", "tool_call_id", "reasoning_content"):
        if getattr(message, name):
            made[name] = getattr(message, name)
    if message.tool_calls_json:
        made["tool_calls"] = _parsed(message.tool_calls_json, f"messages[{place}].tool_calls")
    return made


def _parsed(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if name == "tool_choice" and text in ("auto", "none", "required"):
            return text
        raise InvalidRequest(f"{name} is not JSON: {error}", field=name) from error
