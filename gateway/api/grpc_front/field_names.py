"""Fields named as the contract of the gRPC door spells them: the rules it shares with REST name them as JSON bodies do."""

from __future__ import annotations

import re

from protos.gateway.v1 import gateway_pb2 as pb
from services.common.errors import HeadraceError

_SAMPLING = frozenset(pb.SamplingParams.DESCRIPTOR.fields_by_name)
_OTHERS = {
    "rid": "request_id",
    "sampling_params": "sampling",
    "max_completion_tokens": "sampling.max_new_tokens",
    "min_tokens": "sampling.min_new_tokens",
    "custom_params": "sampling.custom_params_json",
    "return_logprob": "logprobs.enabled",
    "logprobs": "logprobs.enabled",
    "top_logprobs_num": "logprobs.top",
    "top_logprobs": "logprobs.top",
    "token_ids_logprob": "logprobs.token_ids",
    "logprob_start_len": "logprobs.prompt_from",
    "tempered_logprobs": "logprobs.tempered",
    "tools": "tools_json",
    "tool_choice": "tool_choice_json",
    "chat_template_kwargs": "template_kwargs_json",
}
_HEAD = re.compile(r"\w*")


def contract_name(field: str) -> str:
    """A field of a JSON body, such as `sampling_params.stop[0]`, as the path in GenerateRequest or ChatRequest."""
    inner = field.removeprefix("sampling_params.")
    found = _HEAD.match(inner)
    head = found[0] if found else ""
    named = f"sampling.{head}" if head in _SAMPLING else _OTHERS.get(head, head)
    return (named + inner[len(head) :]).replace("].tool_calls", "].tool_calls_json")


def rename(error: HeadraceError) -> HeadraceError:
    """The same error with its field, and a message that begins with it, in the contract's terms."""
    named = contract_name(error.field)
    if error.message.startswith(error.field):
        error.message = named + error.message[len(error.field) :]
    error.field = named
    return error
