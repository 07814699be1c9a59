"""Streamed completions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.api.answers import finish_reason, matched_stop
from gateway.api.chunks import Chunks
from gateway.api.completion_logprobs import CompletionLogprobs
from gateway.api.errors import dumps, spell
from gateway.api.schema.completions import CompletionCall
from gateway.api.sse import SseStream
from gateway.api.usage import usage_of
from gateway.flight.choice import Choice
from gateway.flight.flight import Flight


class CompletionChunks(Chunks):
    """Spells chunks of one answer."""

    def __init__(self, answer_id: str, created: int, model: str, *, usage: bool) -> None:
        super().__init__("text_completion", answer_id, created, model, usage=usage)

    def text(self, index: int) -> tuple[str, str]:
        """What stands before and after the JSON string of a piece of text."""
        tail = f',"logprobs":null,"finish_reason":null}}]{self._usage}}}\n\n'
        return f'{self._head},"choices":[{{"index":{index},"text":', tail

    def chunk(self, choice: dict[str, Any], usage: bytes | None = None) -> bytes:
        """Any other chunk of a choice."""
        body = spell([choice])
        tail = self._usage.encode() if usage is None else b',"usage":' + usage
        return f'{self._head},"choices":{body}'.encode() + tail + b"}\n\n"


class CompletionStream:
    """Listener of one prompt's flight. `first_index`: number of its first choice in the answer."""

    def __init__(
        self,
        call: CompletionCall,
        chunks: CompletionChunks,
        sse: SseStream,
        *,
        first_index: int,
        echoed: str,
        logprobs: Callable[[], CompletionLogprobs],
    ) -> None:
        self._call = call
        self._chunks = chunks
        self._write = sse.write
        self._first = first_index
        self._echoed = echoed
        self._logprobs = [logprobs() for _ in range(call.n)] if call.logprobs is not None else []
        self._framed = [sse.framed(*chunks.text(first_index + i)) for i in range(call.n)]
        self._plain = not self._logprobs and not call.stream.every
        self._reported = [0] * call.n
        self._started = [not call.echo] * call.n

    def follow(self, flight: Flight) -> None:
        """This flight is listened to: text that is only framed goes straight to the client."""
        if self._plain and not self._call.echo:
            for choice, emit in zip(flight.choices, self._framed, strict=True):
                choice.emit = emit

    def text(self, choice: Choice, piece: str) -> None:
        """See Listener."""
        if not self._started[choice.index]:
            self._echo(choice)
        if self._plain:
            self._framed[choice.index](piece)
            return
        self._say(choice, piece, self._take(choice, choice.through))

    def finished(self, choice: Choice) -> None:
        """See Listener."""
        if not self._started[choice.index]:
            self._echo(choice)
        if self._logprobs and self._reported[choice.index] < len(choice.logprobs):
            self._say(choice, "", self._take(choice, len(choice.logprobs)))
        made = self._made(choice, "", None)
        made["finish_reason"] = finish_reason(choice)
        made["matched_stop"] = matched_stop(choice)
        self._write(self._chunks.chunk(made))

    def _echo(self, choice: Choice) -> None:
        self._started[choice.index] = True
        logprobs = None
        if self._logprobs:
            logprobs = self._logprobs[choice.index].of(choice.flight.prompt_logprobs)
        self._say(choice, self._echoed, logprobs)

    def _take(self, choice: Choice, through: int) -> dict[str, Any] | None:
        if not self._logprobs:
            return None
        begin, end = self._reported[choice.index], min(through, len(choice.logprobs))
        self._reported[choice.index] = max(begin, end)
        return self._logprobs[choice.index].of(choice.logprobs[begin:end])

    def _made(self, choice: Choice, text: str, logprobs: dict[str, Any] | None) -> dict[str, Any]:
        return {"index": self._first + choice.index, "text": text, "logprobs": logprobs, "finish_reason": None}

    def _say(self, choice: Choice, text: str, logprobs: dict[str, Any] | None) -> None:
        usage = dumps(usage_of([choice.flight])) if self._call.stream.every else None
        self._write(self._chunks.chunk(self._made(choice, text, logprobs), usage))
