"""`POST /v1/completions`."""

from __future__ import annotations

import time
from typing import Any

from aiohttp import web

from gateway.api.answers import finish_reason, ids_in, matched_stop
from gateway.api.body import read_json
from gateway.api.checked import accept_check, verdict_list, verdict_of
from gateway.api.completion_logprobs import CompletionLogprobs
from gateway.api.completion_stream import CompletionChunks, CompletionStream
from gateway.api.context import Caller, caller, defaults_for
from gateway.api.errors import dumps, openai_body
from gateway.api.later import Later
from gateway.api.schema.completions import CompletionCall, read_completion
from gateway.api.schema.reader import Fields
from gateway.api.stream_answer import StreamAnswer, Streamed, route_headers
from gateway.api.usage import usage_of
from gateway.api.whole_answer import run_whole
from gateway.flight.choice import Choice
from gateway.flight.flight import Flight, Silent
from gateway.flight.spec import GenerateSpec, IdsPrompt, TextPrompt


async def completions(request: web.Request) -> web.StreamResponse:
    """Continue one prompt or several, whole or streamed."""
    who = caller(request)
    with who.doors.recorder.reading("completions"):
        body = await read_json(request, who.doors.settings.max_body)
        call = read_completion(body, await defaults_for(request, Fields(body).string("model", longest=1024)))
        await accept_check(who.doors.checker, call.specs[0])
        hidden = await _hidden(who, call)
        echoed = [await _prompt_text(who, spec) if call.echo else "" for spec in call.specs]
    if call.stream.on:
        return await _streamed(request, who, call, echoed, hidden)
    flights = [Flight(spec, Silent()) for spec in call.specs]
    await run_whole(who, "completions", call.model, flights)
    answer = await _whole(who, call, flights, echoed, hidden)
    return web.Response(body=dumps(answer), content_type="application/json", headers=route_headers(request, flights[0]))


async def _hidden(who: Caller, call: CompletionCall) -> frozenset[int]:
    """Special tokens leave no text where they are skipped."""
    spec = call.specs[0]
    if spec.logprobs is None or not spec.stops.skip_special_tokens:
        return frozenset()
    return frozenset((await who.doors.tokenizer.info(call.model)).special_tokens.values())


async def _prompt_text(who: Caller, spec: GenerateSpec) -> str:
    if isinstance(spec.prompt, TextPrompt):
        return spec.prompt.text
    assert isinstance(spec.prompt, IdsPrompt)
    skip = spec.stops.skip_special_tokens
    [text] = await who.doors.tokenizer.decode(spec.model, [spec.prompt.token_ids], skip_special=skip, request_id=spec.request_id)
    return text


async def _streamed(
    request: web.Request, who: Caller, call: CompletionCall, echoed: list[str], hidden: frozenset[int]
) -> web.StreamResponse:
    answer = StreamAnswer(request, who)
    pieces = who.doors.pieces.of(call.model)
    chunks = CompletionChunks(_answer_id(who), int(time.time()), call.model, usage=call.stream.usage or call.stream.every)
    flights, delayed = [], []
    for place, spec in enumerate(call.specs):
        stream = CompletionStream(
            call,
            chunks,
            answer.sse,
            first_index=place * call.n,
            echoed=echoed[place],
            logprobs=lambda: CompletionLogprobs(pieces, hidden),
        )
        later = Later(stream, pieces) if call.logprobs is not None else None
        if later is not None:
            delayed.append(later)
        flights.append(Flight(spec, later or stream))
        stream.follow(flights[-1])

    def finale() -> bytes:
        return chunks.totals(usage_of(flights)) if call.stream.usage else b""

    async def check() -> bytes:
        numbered = ((place * call.n + c.index, c, None) for place, flight in enumerate(flights) for c in flight.choices)
        return chunks.checked(await verdict_list(who.doors.checker, numbered))

    after = check if call.specs[0].check is not None else None
    return await answer.run(Streamed("completions", call.model, flights, finale, openai_body, delayed, after))


def _answer_id(who: Caller) -> str:
    return f"cmpl-{who.request_id}"


async def _whole(who: Caller, call: CompletionCall, flights: list[Flight], echoed: list[str], hidden: frozenset[int]) -> dict[str, Any]:
    pieces = who.doors.pieces.of(call.model)
    if call.logprobs is not None:
        for flight in flights:
            await pieces.ensure(ids_in(flight.prompt_logprobs))
            await pieces.ensure(token for choice in flight.choices for token in ids_in(choice.logprobs))
    choices = [
        _choice(call, choice, place * call.n, echoed[place], CompletionLogprobs(pieces, hidden))
        for place, flight in enumerate(flights)
        for choice in flight.choices
    ]
    if call.specs[0].check is not None:
        for made, choice in zip(choices, (c for flight in flights for c in flight.choices), strict=True):
            made["schema_check"] = await verdict_of(who.doors.checker, choice)
    return {
        "id": _answer_id(who),
        "object": "text_completion",
        "created": int(time.time()),
        "model": call.model,
        "choices": choices,
        "usage": usage_of(flights),
    }


def _choice(call: CompletionCall, choice: Choice, first: int, echoed: str, spelled: CompletionLogprobs) -> dict[str, Any]:
    logprobs = None
    if call.logprobs is not None:
        logprobs = spelled.of([*choice.flight.prompt_logprobs, *choice.logprobs])
    return {
        "index": first + choice.index,
        "text": echoed + choice.full_text(),
        "logprobs": logprobs,
        "finish_reason": finish_reason(choice),
        "matched_stop": matched_stop(choice),
    }
