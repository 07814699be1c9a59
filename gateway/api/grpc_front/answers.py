"""Answers of flights as messages of the gRPC door."""

from __future__ import annotations

import asyncio
import json

from gateway.api.answers import finite, is_cut
from gateway.api.checked import verdict_of
from gateway.api.usage import cached_tokens
from gateway.checking.checker import SchemaChecker
from gateway.clients.pieces import PieceTable
from gateway.flight.choice import Choice
from gateway.flight.flight import Flight
from gateway.flight.result import TokenLogprob
from gateway.parsing.events import Content, Event, Reasoning
from gateway.parsing.plan import AnswerParser, ParsePlan
from protos.common.v1 import common_pb2
from protos.gateway.v1 import gateway_pb2 as pb


class MessageMaker:
    """Listener that turns events into messages on a queue; streamed, or one per choice at its end."""

    def __init__(self, plan: ParsePlan, *, model: str, n: int, stream: bool, token_ids: bool, pieces: PieceTable) -> None:
        self.queue: asyncio.Queue[pb.GenerateResponse | None] = asyncio.Queue()
        self._parsers: list[AnswerParser] = [plan.parser() for _ in range(n)]
        self._model = model
        self._stream = stream
        self._token_ids = token_ids
        self._pieces = pieces
        self._ids_sent = [0] * n
        self._logprobs_sent = [0] * n

    def text(self, choice: Choice, piece: str) -> None:
        """See Listener."""
        parser = self._parsers[choice.index]
        events = parser.feed(piece, choice.flight.thought_at)
        if parser.satisfied:
            choice.flight.satisfy(choice)
        if self._stream:
            self._send(choice, events, choice.through, last=False)

    def finished(self, choice: Choice) -> None:
        """See Listener."""
        parser = self._parsers[choice.index]
        events = parser.finish(choice.flight.thought_at, cut=is_cut(choice))
        if not self._stream:
            events = [Content("".join(parser.content)), Reasoning("".join(parser.reasoning))]
        self._send(choice, events, len(choice.output_ids), last=True)

    async def check(self, checker: SchemaChecker, flight: Flight) -> None:
        """A message with the verdict on each choice."""
        for choice in flight.choices:
            verdict = await verdict_of(checker, choice, self._parsers[choice.index])
            message = pb.GenerateResponse(index=choice.index, request_id=flight.spec.request_id, model=self._model)
            message.schema_check_json = json.dumps(verdict, ensure_ascii=False)
            self.queue.put_nowait(message)

    def end(self) -> None:
        """No more messages."""
        self.queue.put_nowait(None)

    def _send(self, choice: Choice, events: list[Event], through: int, *, last: bool) -> None:
        message = pb.GenerateResponse(index=choice.index, request_id=choice.flight.spec.request_id, model=self._model)
        message.text = "".join(event.text for event in events if isinstance(event, Content))
        message.reasoning_text = "".join(event.text for event in events if isinstance(event, Reasoning))
        if self._token_ids:
            message.token_ids.extend(choice.output_ids[self._ids_sent[choice.index] : through])
            self._ids_sent[choice.index] = max(through, self._ids_sent[choice.index])
        begin, end = self._logprobs_sent[choice.index], min(through, len(choice.logprobs))
        message.logprobs.extend(self._logprob(entry) for entry in choice.logprobs[begin:end])
        self._logprobs_sent[choice.index] = max(begin, end)
        if last:
            self._finish(choice, message)
        if last or message.text or message.reasoning_text or message.token_ids or message.logprobs:
            self.queue.put_nowait(message)

    def _finish(self, choice: Choice, message: pb.GenerateResponse) -> None:
        parser = self._parsers[choice.index]
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": "".join(call.arguments)}}
            for call in parser.calls
            if call.whole
        ]
        if calls:
            message.tool_calls_json = json.dumps(calls, ensure_ascii=False)
        message.prompt_logprobs.extend(self._logprob(entry) for entry in choice.flight.prompt_logprobs)
        message.finish.CopyFrom(finish_message(choice, called=parser.called))

    def _logprob(self, entry: TokenLogprob) -> pb.TokenLogprob:
        made = pb.TokenLogprob(token_id=entry.token_id, token=self._pieces.bytes_of(entry.token_id))
        value = finite(entry.logprob)
        if value is not None:
            made.logprob = value
        for token, top in entry.top:
            made.top.append(pb.TokenLogprob(token_id=token, logprob=finite(top) or 0.0, token=self._pieces.bytes_of(token)))
        return made


def finish_message(choice: Choice, *, called: bool) -> pb.Finish:
    """How a choice ended, with its counts and times."""
    finish, flight = choice.finish, choice.flight
    assert finish is not None
    made = pb.Finish(
        reason="tool_calls" if called and finish.reason.value == "stop" else finish.reason.value,
        usage=pb.Usage(prompt_tokens=len(flight.prompt_ids), completion_tokens=len(choice.output_ids), cached_tokens=cached_tokens(flight)),
        timings=common_pb2.Timings(
            queue_ns=int(choice.queue_s * 1e9),
            first_token_ns=max(0, int((choice.first_token_at - flight.created) * 1e9)),
            total_ns=max(0, int((choice.last_token_at - flight.created) * 1e9)),
        ),
        retractions=choice.retractions,
        resumes=flight.resumes,
        message=finish.message,
    )
    if isinstance(finish.matched, int):
        made.matched_token_id = finish.matched
    elif finish.matched is not None:
        made.matched_text = finish.matched
    return made
