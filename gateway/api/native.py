"""`/generate` and what belongs to it."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from gateway.api.answers import ids_in
from gateway.api.body import read_json
from gateway.api.checked import accept_check, verdict_list, verdict_of
from gateway.api.context import Caller, caller, defaults_for
from gateway.api.errors import dumps, native_body
from gateway.api.later import Later
from gateway.api.meta_info import meta_info
from gateway.api.native_stream import NativeStream
from gateway.api.schema.native import NativeCall, read_native
from gateway.api.schema.reader import Fields
from gateway.api.stream_answer import StreamAnswer, Streamed, route_headers
from gateway.api.whole_answer import run_whole
from gateway.flight.flight import Flight, Listener, Silent


async def generate(request: web.Request) -> web.StreamResponse:
    """Answer one prompt with an object, several (or several choices) with an array in order."""
    who = caller(request)
    with who.doors.recorder.reading("generate"):
        body = await read_json(request, who.doors.settings.max_body)
        call = read_native(body, await defaults_for(request, Fields(body).string("model", longest=1024)))
        for spec in call.specs:
            await accept_check(who.doors.checker, spec)
    if call.stream:
        return await _streamed(request, who, call)
    flights = [Flight(spec, Silent()) for spec in call.specs]
    await run_whole(who, "generate", call.specs[0].model, flights)
    answers = await _whole(who, call, flights)
    single = not call.batch and call.specs[0].n == 1
    body_bytes = dumps(answers[0] if single else answers)
    return web.Response(body=body_bytes, content_type="application/json", headers=route_headers(request, flights[0]))


async def _whole(who: Caller, call: NativeCall, flights: list[Flight]) -> list[dict[str, Any]]:
    pieces = who.doors.pieces.of(call.specs[0].model)
    if call.text_in_logprobs:
        for flight in flights:
            await pieces.ensure(ids_in(flight.prompt_logprobs))
            await pieces.ensure(token for choice in flight.choices for token in ids_in(choice.logprobs))
            if flight.spec.logprobs is not None:
                await pieces.ensure(flight.spec.logprobs.ids)
    made = []
    for choice in (choice for flight in flights for choice in flight.choices):
        info = meta_info(choice, pieces, text_in_logprobs=call.text_in_logprobs)
        if choice.flight.spec.check is not None:
            info["schema_check"] = await verdict_of(who.doors.checker, choice)
        made.append({"text": choice.full_text(), "output_ids": choice.output_ids, "meta_info": info})
    return made


async def _streamed(request: web.Request, who: Caller, call: NativeCall) -> web.StreamResponse:
    answer = StreamAnswer(request, who)
    flights, delayed, first = [], [], 0
    numbered = call.batch or call.specs[0].n > 1
    for spec in call.specs:
        listener: Listener = NativeStream(
            answer.sse.write,
            who.doors.pieces.of(spec.model),
            incremental=who.doors.settings.incremental_output,
            first_index=first,
            numbered=numbered,
            detailed=spec.logprobs is not None,
            text_in_logprobs=call.text_in_logprobs,
        )
        if call.text_in_logprobs and spec.logprobs is not None:
            listener = Later(listener, who.doors.pieces.of(spec.model))
            delayed.append(listener)
        flights.append(Flight(spec, listener))
        first += spec.n

    async def check() -> bytes:
        choices = enumerate(choice for flight in flights for choice in flight.choices)
        rated = ((index, choice, None) for index, choice in choices if choice.flight.spec.check is not None)
        return b"data: " + dumps({"schema_check": await verdict_list(who.doors.checker, rated)}) + b"\n\n"

    after = check if any(spec.check is not None for spec in call.specs) else None
    return await answer.run(Streamed("generate", call.specs[0].model, flights, lambda: b"", native_body, delayed, after))


async def abort_request(request: web.Request) -> web.StreamResponse:
    """End a request by its exact id, or all of them. An unknown id is no error."""
    who = caller(request)
    fields = Fields(await read_json(request, who.doors.settings.max_body))
    if fields.boolean("abort_all", False):
        aborted = who.doors.pipeline.abort_all()
        return _aborted(aborted + await who.doors.admin.abort(all_requests=True))
    if not fields.has("rid"):
        raise fields.bad("rid", "a request id")
    rid = fields.string("rid", longest=1024)
    aborted = int(who.doors.pipeline.abort(rid))
    if not aborted:
        aborted = await who.doors.admin.abort(rid)
    return _aborted(aborted)


def _aborted(count: int) -> web.Response:
    return web.Response(body=dumps({"aborted": count}), content_type="application/json")
