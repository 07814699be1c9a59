"""Doors over HTTP with server-sent events: native /generate, OpenAI completions and chat."""

from __future__ import annotations

import asyncio
import json
import re
import time
from abc import ABC, abstractmethod
from typing import Any

from headrace.bench.http_stream import BadAnswer, Connection, Pool, StaleConnection, post
from headrace.bench.record import BenchRequest, Outcome
from headrace.bench.settings import Sending
from headrace.bench.sse import EventReader

_DETAIL = 300
_NO_CHOICES = re.compile(rb'"choices": ?\[\]')
_FINISH = re.compile(rb'"finish_reason": ?"')
_EMPTY = re.compile(rb'"delta": ?\{\}|"text": ?""|"content": ?""')
_ROLE_ONLY = re.compile(rb'"content": ?(""|null)')


class HttpBackend(ABC):
    """Sends and times one streamed request; what the JSON looks like is a subclass's."""

    path: str

    def __init__(self, url: str, sending: Sending) -> None:
        self._pool = Pool(url)
        self._sending = sending
        self._headers = {"Authorization": f"Bearer {sending.api_key}"} if sending.api_key else {}

    @abstractmethod
    def body(self, request: BenchRequest) -> dict[str, Any]:
        """The request's JSON."""

    @abstractmethod
    def carries_output(self, event: bytes) -> bool:
        """Does the event bring tokens? Called for every event, so it looks at bytes."""

    @abstractmethod
    def read_end(self, reader: EventReader, outcome: Outcome) -> None:
        """Take counts, the reason of the end and the text from the collected events."""

    async def send(self, request: BenchRequest, outcome: Outcome) -> None:
        raw = json.dumps({**self.body(request), **self._sending.extra_body}).encode()
        message = post(f"{self._pool.host}:{self._pool.port}", self._pool.prefix + self.path, raw, self._headers)
        reader = EventReader(self.carries_output)
        plain: list[bytes] = []
        begin = time.perf_counter() - self._sending.clock_zero
        outcome.sent = begin
        try:
            async with asyncio.timeout(self._sending.timeout_s):
                status = await self._exchange(message, reader, plain)
            self._judge(status, reader, b"".join(plain), outcome)
        except TimeoutError:
            outcome.error, outcome.detail = "timeout", f"no end after {self._sending.timeout_s:g} s"
        except BadAnswer as error:
            outcome.error, outcome.detail = "broken answer", str(error)
        except OSError as error:
            outcome.error, outcome.detail = "no connection", str(error)
        outcome.ended = time.perf_counter() - self._sending.clock_zero
        for at in reader.times:
            outcome.events.append(at - self._sending.clock_zero)

    async def _exchange(self, message: bytes, reader: EventReader, plain: list[bytes]) -> int:
        """Send on a kept connection, or on the next one where the server had closed that."""
        while True:
            connection = await self._pool.take()

            def on_body(data: bytes, now: float, connection: Connection = connection) -> None:
                if connection.status == 200:
                    reader.feed(data, now)
                else:
                    plain.append(data)

            try:
                return await connection.exchange(message, on_body)
            except StaleConnection:
                continue
            finally:
                self._pool.put(connection)

    def _judge(self, status: int, reader: EventReader, plain: bytes, outcome: Outcome) -> None:
        if status != 200:
            outcome.error, outcome.detail = f"HTTP {status}", plain.decode(errors="replace")[:_DETAIL]
        elif reader.failed is not None:
            outcome.error, outcome.detail = "error in stream", reader.failed.decode(errors="replace")[:_DETAIL]
        elif not reader.times:
            outcome.error, outcome.detail = "empty answer", f"{len(reader.events)} events, none with output"
        else:
            self.read_end(reader, outcome)
            if outcome.finish == "abort":
                outcome.error = "aborted by the server"

    async def close(self) -> None:
        self._pool.close()


def decoded(event: bytes) -> dict[str, Any]:
    """JSON of a `data:` event."""
    value = json.loads(event[event.index(b":") + 1 :])
    return value if isinstance(value, dict) else {}


class NativeBackend(HttpBackend):
    """POST /generate."""

    path = "/generate"

    def body(self, request: BenchRequest) -> dict[str, Any]:
        prompt: dict[str, Any] = {"input_ids": list(request.prompt_ids)} if request.prompt_ids else {"text": request.text}
        sampling = {"max_new_tokens": request.output_len, "ignore_eos": self._sending.ignore_eos, "temperature": self._sending.temperature}
        return {**prompt, "sampling_params": sampling, "stream": True}

    def carries_output(self, event: bytes) -> bool:
        return True

    def read_end(self, reader: EventReader, outcome: Outcome) -> None:
        last = decoded(reader.events[-1])
        meta = last.get("meta_info", {})
        if len(reader.events) > 1:
            before = decoded(reader.events[-2]).get("meta_info", {})
            if before.get("completion_tokens") == meta.get("completion_tokens"):
                reader.drop_last_time()  # it only says how the answer ended
        outcome.prompt_tokens = int(meta.get("prompt_tokens", 0))
        outcome.output_tokens = int(meta.get("completion_tokens", 0))
        outcome.cached_tokens = meta.get("cached_tokens")
        finish = meta.get("finish_reason") or {}
        outcome.finish = str(finish.get("type", "")) if isinstance(finish, dict) else str(finish)
        if self._sending.keep_text:
            outcome.text = str(last.get("text", ""))


class CompletionsBackend(HttpBackend):
    """POST /v1/completions of any server with the OpenAI API."""

    path = "/v1/completions"

    def body(self, request: BenchRequest) -> dict[str, Any]:
        prompt: Any = list(request.prompt_ids) if request.prompt_ids else request.text
        return {**self._common(request), "prompt": prompt, "max_tokens": request.output_len}

    def _common(self, request: BenchRequest) -> dict[str, Any]:
        common: dict[str, Any] = {
            "model": self._sending.model,
            "temperature": self._sending.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._sending.ignore_eos:
            common["ignore_eos"] = True
        return common

    def carries_output(self, event: bytes) -> bool:
        """Neither the usage nor a last word that only says how the answer ended."""
        if _NO_CHOICES.search(event) is not None:
            return False
        return _FINISH.search(event) is None or _EMPTY.search(event) is None

    def read_end(self, reader: EventReader, outcome: Outcome) -> None:
        events = reader.events
        usage: dict[str, Any] = {}
        for event in reversed(events[-4:]):
            data = decoded(event)
            usage = usage or data.get("usage") or {}
            for choice in data.get("choices") or []:
                outcome.finish = outcome.finish or str(choice.get("finish_reason") or "")
        outcome.prompt_tokens = int(usage.get("prompt_tokens", outcome.wanted_input or 0))
        outcome.output_tokens = int(usage.get("completion_tokens", len(events)))
        outcome.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        if self._sending.keep_text:
            outcome.text = "".join(self.text_of(decoded(event)) for event in events)

    def text_of(self, data: dict[str, Any]) -> str:
        """The piece of text in one event."""
        return "".join(str(choice.get("text") or "") for choice in data.get("choices") or [])


class ChatBackend(CompletionsBackend):
    """POST /v1/chat/completions of any server with the OpenAI API."""

    path = "/v1/chat/completions"

    def body(self, request: BenchRequest) -> dict[str, Any]:
        messages = list(request.messages) or [{"role": "user", "content": request.text}]
        return {**self._common(request), "messages": messages, "max_tokens": request.output_len}

    def carries_output(self, event: bytes) -> bool:
        """Not the opening event that only names the role."""
        if b'"role"' in event and _ROLE_ONLY.search(event) is not None:
            return False
        return super().carries_output(event)

    def text_of(self, data: dict[str, Any]) -> str:
        return "".join(str((choice.get("delta") or {}).get("content") or "") for choice in data.get("choices") or [])
