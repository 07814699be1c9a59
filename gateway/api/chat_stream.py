"""Streamed chat answers: chunks made of a prepared head and tail around each delta."""

from __future__ import annotations

from typing import Any

from gateway.api.answers import chat_logprob, finish_reason, is_cut, matched_stop
from gateway.api.chunks import Chunks
from gateway.api.errors import dumps, spell
from gateway.api.schema.chat import ChatCall
from gateway.api.sse import SseStream
from gateway.api.usage import usage_of
from gateway.clients.pieces import PieceTable
from gateway.flight.choice import Choice
from gateway.flight.flight import Flight
from gateway.parsing.events import CallArguments, CallBegin, CallEnd, Content, Event, Reasoning
from gateway.parsing.plan import AnswerParser


class ChatChunks(Chunks):
    """Spells chunks of one answer."""

    def __init__(self, answer_id: str, created: int, model: str, *, usage: bool) -> None:
        super().__init__("chat.completion.chunk", answer_id, created, model, usage=usage)

    def text(self, index: int) -> tuple[str, str]:
        """What stands before and after the JSON string of a content delta."""
        head = f'{self._head},"choices":[{{"index":{index},"delta":{{"content":'
        return head, f'}},"logprobs":null,"finish_reason":null}}]{self._usage}}}\n\n'

    def chunk(
        self, index: int, delta: dict[str, Any], *, logprobs: Any = None, finish: str | None = None, matched: int | str | None = None
    ) -> bytes:
        """Any other chunk of a choice."""
        choice: dict[str, Any] = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        if finish is not None:
            choice["matched_stop"] = matched
        body = spell([choice])
        return f'{self._head},"choices":{body}{self._usage}}}\n\n'.encode()


class ChatStream:
    """Listener of one flight: each piece of text becomes a chunk at once.

    With logprobs a chunk waits until the texts of its tokens are known; `settle` then writes what waits.
    """

    def __init__(self, call: ChatCall, chunks: ChatChunks, sse: SseStream, pieces: PieceTable) -> None:
        plain = call.plan.plain and call.spec.logprobs is None and not call.stream.every
        self._write = sse.write
        self._chunks = chunks
        self._pieces = pieces
        self._every = call.stream.every
        self._logprobs = call.spec.logprobs is not None
        self._parsers = [call.plan.parser() for _ in range(call.spec.n)] if not call.plan.plain else []
        self._framed = [sse.framed(*chunks.text(index)) for index in range(call.spec.n)] if plain else []
        self._reported = [0] * call.spec.n
        for index in range(call.spec.n):
            sse.write(chunks.chunk(index, {"role": "assistant", "content": ""}))

    def follow(self, flight: Flight) -> None:
        """This flight is listened to: text that is only framed goes straight to the client."""
        for choice, emit in zip(flight.choices, self._framed, strict=False):
            choice.emit = emit

    def text(self, choice: Choice, piece: str) -> None:
        """See Listener."""
        if not self._parsers:
            self._say(choice, [Content(piece)])
            return
        parser = self._parsers[choice.index]
        self._say(choice, parser.feed(piece, choice.flight.thought_at))
        if parser.satisfied:
            choice.flight.satisfy(choice)

    def finished(self, choice: Choice) -> None:
        """See Listener."""
        called = False
        if self._parsers:
            parser = self._parsers[choice.index]
            self._say(choice, parser.finish(choice.flight.thought_at, cut=is_cut(choice)))
            called = parser.called
        self._report_rest(choice)
        finish = finish_reason(choice, called=called)
        self._write(self._chunks.chunk(choice.index, {}, finish=finish, matched=matched_stop(choice)))

    def parser(self, index: int) -> AnswerParser | None:
        """The choice's parser, if its text is parsed."""
        return self._parsers[index] if self._parsers else None

    def _say(self, choice: Choice, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, CallEnd):
                continue
            logprobs = self._take_logprobs(choice) if isinstance(event, Content) else None
            chunk = self._chunks.chunk(choice.index, self._delta(choice, event), logprobs=logprobs)
            self._write(self._with_usage(chunk, choice.flight))

    def _delta(self, choice: Choice, event: Event) -> dict[str, Any]:
        if isinstance(event, Content):
            return {"content": event.text}
        if isinstance(event, Reasoning):
            return {"reasoning_content": event.text}
        if isinstance(event, CallBegin):
            call = self._parsers[choice.index].calls[event.index]
            head = {"index": event.index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
            return {"tool_calls": [head]}
        assert isinstance(event, CallArguments)
        return {"tool_calls": [{"index": event.index, "function": {"arguments": event.text}}]}

    def _take_logprobs(self, choice: Choice) -> Any:
        """Logprobs of the tokens whose text is out, those not yet reported."""
        if not self._logprobs:
            return None
        begin = self._reported[choice.index]
        end = min(choice.through, len(choice.logprobs))
        self._reported[choice.index] = max(begin, end)
        return {"content": [chat_logprob(entry, self._pieces) for entry in choice.logprobs[begin:end]], "refusal": None}

    def _report_rest(self, choice: Choice) -> None:
        """Logprobs of tokens without text of their own, such as the end token."""
        if not self._logprobs or self._reported[choice.index] >= len(choice.logprobs):
            return
        rest = choice.logprobs[self._reported[choice.index] :]
        self._reported[choice.index] = len(choice.logprobs)
        logprobs = {"content": [chat_logprob(entry, self._pieces) for entry in rest], "refusal": None}
        self._write(self._chunks.chunk(choice.index, {"content": ""}, logprobs=logprobs))

    def _with_usage(self, chunk: bytes, flight: Flight) -> bytes:
        if not self._every:
            return chunk
        return chunk.replace(b',"usage":null}\n\n', b',"usage":' + dumps(usage_of([flight])) + b"}\n\n")
