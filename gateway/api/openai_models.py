"""`/v1/models`, `/v1/tokenize`, `/v1/detokenize`."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from gateway.api.body import read_json
from gateway.api.context import Caller, caller, defaults_for
from gateway.api.doors import Doors
from gateway.api.errors import dumps
from gateway.api.schema.messages import read_messages, read_tools
from gateway.api.schema.reader import Fields, ids_of
from gateway.flight.spec import ChatPrompt
from services.common.errors import InvalidRequest, NotFound


def _json(value: Any) -> web.Response:
    return web.Response(body=dumps(value), content_type="application/json")


def _model(doors: Doors, name: str) -> dict[str, Any]:
    limits = doors.models.limits(name)
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "headrace",
        "root": name,
        "parent": None,
        "max_model_len": limits.room,
        "ready": doors.models.is_ready(name),
    }


async def list_models(request: web.Request) -> web.StreamResponse:
    """All models some worker serves."""
    doors = caller(request).doors
    return _json({"object": "list", "data": [_model(doors, name) for name in doors.models.names()]})


async def get_model(request: web.Request) -> web.StreamResponse:
    """One model."""
    doors, name = caller(request).doors, request.match_info["model"]
    if name not in doors.models.names():
        raise NotFound(f"the model {name!r} does not exist", field="model", code="model_not_found")
    return _json(_model(doors, name))


async def tokenize(request: web.Request) -> web.StreamResponse:
    """Token ids of a prompt, of several, or of a conversation."""
    who = caller(request)
    fields = Fields(await read_json(request, who.doors.settings.max_body))
    defaults = await defaults_for(request, fields.string("model", longest=1024))
    if fields.has("messages"):
        ids = await _render(who, fields, defaults.model)
        return _json({"tokens": ids, "count": len(ids), "max_model_len": who.doors.models.limits(defaults.model).room})
    name = "prompt" if fields.has("prompt") else "text"
    value = fields.values.get(name)
    texts: list[Any] = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise InvalidRequest("prompt must be a string or an array of strings", field="prompt")
    for text in texts:
        fields.check_text(name, text)
    special = fields.boolean("add_special_tokens", True) if fields.has("add_special_tokens") else None
    rows = await who.doors.tokenizer.encode(defaults.model, texts, add_special=special, request_id=who.request_id, timeout_s=None)
    counts = [len(row) for row in rows]
    many = isinstance(value, list)
    room = who.doors.models.limits(defaults.model).room
    return _json({"tokens": rows if many else rows[0], "count": counts if many else counts[0], "max_model_len": room})


async def _render(who: Caller, fields: Fields, model: str) -> list[int]:
    limits = who.doors.settings.limits
    tools = read_tools(fields, most=limits.max_tools)
    kwargs = fields.object("chat_template_kwargs")
    go_on = fields.boolean("continue_final_message", False)
    prompt = ChatPrompt(
        messages_json=json.dumps(read_messages(fields, most=limits.max_messages), ensure_ascii=False),
        tools_json=json.dumps(tools, ensure_ascii=False) if tools else "",
        template_kwargs_json=json.dumps(kwargs) if kwargs else "",
        add_generation_prompt=fields.boolean("add_generation_prompt", not go_on),
        continue_final_message=go_on,
    )
    return await who.doors.tokenizer.render_chat(model, prompt, request_id=who.request_id, timeout_s=None)


async def detokenize(request: web.Request) -> web.StreamResponse:
    """Text of token ids, one sequence or several."""
    who = caller(request)
    fields = Fields(await read_json(request, who.doors.settings.max_body))
    defaults = await defaults_for(request, fields.string("model", longest=1024))
    value = fields.array("tokens")
    if value is None:
        raise fields.bad("tokens", "an array of token ids")
    many = bool(value) and isinstance(value[0], list)
    rows = value if many else [value]
    if not all(isinstance(row, list) for row in rows):
        raise InvalidRequest("tokens mixes ids and arrays", field="tokens")
    vocab = who.doors.models.limits(defaults.model).vocab_size
    sequences = [ids_of(row, "tokens") for row in rows]
    if vocab and any(token >= vocab for row in sequences for token in row):
        raise InvalidRequest(f"tokens: the vocabulary has {vocab} tokens", field="tokens")
    skip = fields.boolean("skip_special_tokens", True)
    texts = await who.doors.tokenizer.decode(defaults.model, sequences, skip_special=skip, request_id=who.request_id)
    text = texts if many else texts[0]
    return _json({"text": text, "prompt": text})
