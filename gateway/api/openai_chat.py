"""`POST /v1/chat/completions`."""

from __future__ import annotations

import time
from typing import Any

from aiohttp import web

from gateway.api.answers import chat_logprob, finish_reason, ids_in, is_cut, matched_stop
from gateway.api.body import read_json
from gateway.api.chat_stream import ChatChunks, ChatStream
from gateway.api.checked import accept_check, verdict_list, verdict_of
from gateway.api.context import Caller, caller, defaults_for
from gateway.api.errors import dumps, openai_body
from gateway.api.later import Later
from gateway.api.reasoning_count import reasoning_tokens
from gateway.api.schema.chat import ChatCall, read_chat
from gateway.api.schema.reader import Fields
from gateway.api.stream_answer import StreamAnswer, Streamed, route_headers
from gateway.api.usage import usage_of
from gateway.api.whole_answer import run_whole
from gateway.clients.pieces import PieceTable
from gateway.flight.choice import Choice
from gateway.flight.flight import Flight, Listener
from gateway.parsing.plan import AnswerParser


async def chat_completions(request: web.Request) -> web.StreamResponse:
    """Answer a conversation, whole or streamed."""
    who = caller(request)
    with who.doors.recorder.reading("chat"):
        body = await read_json(request, who.doors.settings.max_body)
        call = read_chat(body, await defaults_for(request, Fields(body).string("model", longest=1024)))
        await accept_check(who.doors.checker, call.spec)
    if call.stream.on:
        return await _streamed(request, who, call)
    collected = Collected(call)
    flight = Flight(call.spec, collected)
    await run_whole(who, "chat", call.spec.model, [flight])
    answer = await _whole(call, flight, collected, who)
    return web.Response(body=dumps(answer), content_type="application/json", headers=route_headers(request, flight))


async def _streamed(request: web.Request, who: Caller, call: ChatCall) -> web.StreamResponse:
    answer = StreamAnswer(request, who)
    chunks = ChatChunks(_answer_id(call), int(time.time()), call.model, usage=call.stream.usage or call.stream.every)
    pieces = who.doors.pieces.of(call.spec.model)
    chat = ChatStream(call, chunks, answer.sse, pieces)
    later = [Later(chat, pieces)] if call.spec.logprobs is not None else []
    listener: Listener = later[0] if later else chat
    flight = Flight(call.spec, listener)
    chat.follow(flight)

    def finale() -> bytes:
        if not call.stream.usage:
            return b""
        return chunks.totals(usage_of([flight], sum(reasoning_tokens(c, call.plan, chat.parser(c.index)) for c in flight.choices)))

    async def check() -> bytes:
        return chunks.checked(await verdict_list(who.doors.checker, ((c.index, c, chat.parser(c.index)) for c in flight.choices)))

    after = check if call.spec.check is not None else None
    return await answer.run(Streamed("chat", call.spec.model, [flight], finale, openai_body, later, after))


def _answer_id(call: ChatCall) -> str:
    return f"chatcmpl-{call.spec.request_id}"


class Collected:
    """Listener of an answer that is sent whole: parses it as it comes, so that it can be ended when it has all."""

    def __init__(self, call: ChatCall) -> None:
        self.parsers = [call.plan.parser() for _ in range(call.spec.n)]

    def text(self, choice: Choice, piece: str) -> None:
        """See Listener."""
        parser = self.parsers[choice.index]
        parser.feed(piece, choice.flight.thought_at)
        if parser.satisfied:
            choice.flight.satisfy(choice)

    def finished(self, choice: Choice) -> None:
        """See Listener."""
        self.parsers[choice.index].finish(choice.flight.thought_at, cut=is_cut(choice))


async def _whole(call: ChatCall, flight: Flight, collected: Collected, who: Caller) -> dict[str, Any]:
    pieces = who.doors.pieces.of(call.spec.model)
    if call.spec.logprobs is not None:
        await pieces.ensure(token for choice in flight.choices for token in ids_in(choice.logprobs))
    choices, thought = [], 0
    for choice in flight.choices:
        parser = collected.parsers[choice.index]
        thought += reasoning_tokens(choice, call.plan, parser)
        made = _choice(choice, parser, pieces)
        if call.spec.check is not None:
            made["schema_check"] = await verdict_of(who.doors.checker, choice, parser)
        choices.append(made)
    return {
        "id": _answer_id(call),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": call.model,
        "choices": choices,
        "usage": usage_of([flight], thought),
        "system_fingerprint": None,
    }


def _choice(choice: Choice, parser: AnswerParser, pieces: PieceTable) -> dict[str, Any]:
    content = "".join(parser.content)
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": "".join(call.arguments)}}
        for call in parser.calls
        if call.whole
    ]
    message: dict[str, Any] = {"role": "assistant", "content": content if content or not calls else None, "refusal": None}
    message["reasoning_content"] = "".join(parser.reasoning) or None
    if calls:
        message["tool_calls"] = calls
    logprobs = None
    if choice.flight.spec.logprobs is not None:
        logprobs = {"content": [chat_logprob(entry, pieces) for entry in choice.logprobs], "refusal": None}
    return {
        "index": choice.index,
        "message": message,
        "logprobs": logprobs,
        "finish_reason": finish_reason(choice, called=parser.called),
        "matched_stop": matched_stop(choice),
    }
