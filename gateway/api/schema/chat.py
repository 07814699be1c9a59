"""`/v1/chat/completions`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gateway.api.schema.envelope import read_envelope
from gateway.api.schema.limits import Defaults
from gateway.api.schema.logit_processor import with_processor
from gateway.api.schema.logprobs import chat_logprobs
from gateway.api.schema.messages import read_messages, read_tools, tool_names
from gateway.api.schema.openai_fields import CHAT_REFUSED
from gateway.api.schema.reader import Fields, shown
from gateway.api.schema.response_format import read_one_grammar
from gateway.api.schema.sampling import check_grammar, read_sampling, read_stops, refuse_unsupported
from gateway.api.schema.schema_check import read_schema_check
from gateway.api.schema.stream_options import StreamOptions, read_stream
from gateway.flight.spec import ChatPrompt, Constraint, GenerateSpec, Thought
from gateway.parsing.forced import forced_schema
from gateway.parsing.plan import ParsePlan
from gateway.parsing.reasoning import reasoning_family
from gateway.parsing.tools import tool_family
from services.common.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A parsed chat request. plan: how the answer's text is taken apart."""

    spec: GenerateSpec
    plan: ParsePlan
    stream: StreamOptions
    model: str


@dataclass(frozen=True, slots=True)
class _ToolUse:
    """tools given, and what tool_choice makes of them: none, auto, required, or the one named."""

    tools: tuple[dict[str, Any], ...]
    mode: str
    named: str = ""
    parallel: bool = True

    @property
    def forced(self) -> bool:
        return self.mode in ("required", "named")


def read_chat(body: Mapping[str, Any], defaults: Defaults) -> ChatCall:
    """Check a body. Raises InvalidRequest naming the field."""
    fields = Fields(body)
    limits = defaults.limits
    refuse_unsupported(fields, CHAT_REFUSED)
    _check_store_and_modalities(fields)
    stream = read_stream(fields, defaults)
    messages = read_messages(fields, most=limits.max_messages)
    use = _tool_use(fields, limits.max_tools)
    envelope = read_envelope(fields, defaults)
    kwargs = fields.object("chat_template_kwargs") or {}
    plan = _plan(fields, defaults, use)
    functions = [tool["function"] for tool in use.tools] if use.forced or plan.tools is not None else []
    constraint, check = read_schema_check(fields, _constraint(fields, defaults, use, plan), functions)
    stops = read_stops(fields, defaults, max_names=("max_completion_tokens", "max_tokens"), default_max=None)
    logprobs = chat_logprobs(fields, most=limits.max_logprobs)
    spec = GenerateSpec(
        request_id=envelope.request_id,
        model=envelope.model,
        prompt=_prompt(fields, messages, use, kwargs),
        n=fields.integer("n", 1, limits.max_choices) or 1,
        sampling=with_processor(read_sampling(fields, defaults), fields, fields),
        stops=replace(stops, keep_special_tokens=plan.keep_special),
        logprobs=logprobs,
        constraint=constraint,
        check=check,
        thought=_thought(plan, kwargs),
        stream_interval=envelope.stream_interval,
        priority=envelope.priority,
        extra_key=envelope.extra_key,
        cache_salt=envelope.cache_salt,
        routing_key=envelope.routing_key or fields.string("prompt_cache_key", longest=1024),
        tenant=defaults.tenant,
        traceparent=defaults.traceparent,
        timeout_s=envelope.timeout_s,
        prompt_field="messages",
    )
    return ChatCall(spec, plan, stream, envelope.model)


def _check_store_and_modalities(fields: Fields) -> None:
    if fields.boolean("store", False):
        raise InvalidRequest("store: true is not supported: answers are not stored", field="store")
    modalities = fields.array("modalities")
    if modalities is not None and list(modalities) != ["text"]:
        raise InvalidRequest(f'modalities must be ["text"], not {shown(modalities)}', field="modalities")


def _prompt(fields: Fields, messages: list[dict[str, Any]], use: _ToolUse, kwargs: Mapping[str, Any]) -> ChatPrompt:
    go_on = fields.boolean("continue_final_message", False)
    generation = fields.boolean("add_generation_prompt", not go_on)
    if go_on and (generation or messages[-1]["role"] != "assistant"):
        why = "add_generation_prompt is true" if generation else "the last message is not an assistant's"
        raise InvalidRequest(f"continue_final_message cannot be: {why}", field="continue_final_message")
    shown_tools = [{"type": "function", "function": _without_strict(t["function"])} for t in use.tools] if use.mode != "none" else []
    return ChatPrompt(
        messages_json=json.dumps(messages, ensure_ascii=False),
        tools_json=json.dumps(shown_tools, ensure_ascii=False) if shown_tools else "",
        template_kwargs_json=json.dumps(kwargs, ensure_ascii=False) if kwargs else "",
        add_generation_prompt=generation,
        continue_final_message=go_on,
        chat_template=fields.string("chat_template"),
    )


def _without_strict(function: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in function.items() if name != "strict"}


def _tool_use(fields: Fields, most: int) -> _ToolUse:
    tools = read_tools(fields, most=most)
    parallel = fields.boolean("parallel_tool_calls", True)
    names = tool_names(tools)
    if len(set(names)) != len(names):
        raise InvalidRequest("tools has two functions of the same name", field="tools")
    choice = fields.values.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        choice, tools = _allowed(Fields(choice, "tool_choice"), tools)
    if choice is None:
        choice = "auto" if tools else "none"
    if isinstance(choice, str) and choice in ("none", "auto", "required"):
        if choice != "none" and not tools and fields.has("tool_choice"):
            raise InvalidRequest(f"tool_choice {choice!r} needs tools", field="tool_choice")
        return _ToolUse(tuple(tools), choice, parallel=parallel)
    function = choice.get("function") if isinstance(choice, dict) and choice.get("type", "function") == "function" else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise fields.bad("tool_choice", "none, auto, required, or an object naming a function")
    if name not in names:
        raise InvalidRequest(f"tool_choice names {name!r}, which is not among the tools", field="tool_choice")
    return _ToolUse(tuple(tools), "named", name, parallel)


def _allowed(choice: Fields, tools: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """(auto or required, the tools that may be called); the model is not shown the others."""
    inner = Fields(choice.object("allowed_tools") or {}, "tool_choice.allowed_tools")
    mode = inner.string("mode")
    if mode not in ("auto", "required"):
        raise inner.bad("mode", "auto or required")
    given = inner.array("tools") or ()
    functions = [item.get("function") if isinstance(item, dict) else None for item in given]
    names = [function.get("name") if isinstance(function, dict) else None for function in functions]
    known = tool_names(tools)
    unknown = [name for name in names if name not in known]
    if not names or unknown:
        raise InvalidRequest("tool_choice.allowed_tools.tools must name functions among the tools", field="tool_choice.allowed_tools.tools")
    return mode, [tool for tool in tools if tool["function"]["name"] in names]


def _thought(plan: ParsePlan, kwargs: Mapping[str, Any]) -> Thought | None:
    """What a template makes of `enable_thinking` shows at the end of its prompt; where nothing shows, the request's word counts."""
    family = plan.reasoning
    if family is None:
        return None
    wanted = kwargs.get("enable_thinking") is not False and kwargs.get("thinking") is not False
    return Thought(family.begin, family.end, "inside" if wanted and family.starts_inside else "maybe", awaited=wanted)


def _plan(fields: Fields, defaults: Defaults, use: _ToolUse) -> ParsePlan:
    auto = use.mode == "auto" and use.tools and defaults.tool_call_parser
    return ParsePlan(
        reasoning=reasoning_family(defaults.reasoning_parser),
        separate_reasoning=fields.boolean("separate_reasoning", True),
        stream_reasoning=fields.boolean("stream_reasoning", True),
        include_reasoning=fields.boolean("include_reasoning", True),
        tools=tool_family(defaults.tool_call_parser) if auto else None,
        forced=use.mode if use.forced else "",
        forced_name=use.named,
        tool_names=tuple(tool_names(use.tools)),
        parallel=use.parallel,
    )


def _constraint(fields: Fields, defaults: Defaults, use: _ToolUse, plan: ParsePlan) -> Constraint | None:
    wanted = read_one_grammar(fields, defaults)
    if use.forced:
        if wanted is not None:
            raise InvalidRequest("a forced tool call and another grammar exclude each other", field="tool_choice")
        schema = forced_schema(list(use.tools), use.named, parallel=use.parallel)
        check_grammar(schema, "tools", defaults.limits.max_grammar_chars)
        return Constraint("json_schema", schema, field="tools")
    if wanted is not None:
        return wanted
    functions = [tool["function"] for tool in use.tools]
    strict = any(function.get("strict") for function in functions)
    if strict and plan.tools is not None:
        tag = plan.tools.structural_tag(functions)
        check_grammar(tag, "tools", defaults.limits.max_grammar_chars)
        return Constraint("structural_tag", tag, field="tools")
    if strict and use.mode == "auto":
        raise InvalidRequest("strict tools need tool_choice required or named, or a --tool-call-parser", field="tools")
    return None
