"""A server with the OpenAI and native streaming doors that generates nothing: for tests of the load generator."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass, field
from typing import Any


@dataclass
class FakeServer:
    """Answers with `output` one-word tokens per request, `per_chunk` at a time, every `gap_s` seconds."""

    gap_s: float = 0.0
    per_chunk: int = 1
    fail_every: int = 0  # every n-th request gets a 429
    break_every: int = 0  # every n-th connection is cut in mid-answer
    version: str = "1.2.3"
    model: str = "fake"
    leave: bool = False  # close each connection after an answer, without saying so
    slots: int | None = None  # requests decoded at once; the others wait
    seen: list[dict[str, Any]] = field(default_factory=list)
    running: int = 0
    most_running: int = 0
    url: str = ""
    _server: asyncio.Server | None = None
    _slots: asyncio.Semaphore | None = None

    async def __aenter__(self) -> FakeServer:
        self._slots = asyncio.Semaphore(self.slots) if self.slots else None
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                method, path, _ = head.split(" ", 2)
                length = next((int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length")), 0)
                raw = await reader.readexactly(length)
                await self._answer(method, path, json.loads(raw) if raw else {}, writer)
                if self.leave and method == "POST":
                    await reader.readuntil(b"\r\n\r\n")  # the next request is on its way
                    raise ConnectionError
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(self, method: str, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if method == "GET" or path == "/flush_cache":
            known = {"/v1/models": {"data": [{"id": self.model}]}, "/version": {"version": self.version}, "/flush_cache": {}}
            await self._plain(writer, 200 if path in known else 404, known.get(path, {}))
            return
        self.seen.append(body)
        if self.fail_every and len(self.seen) % self.fail_every == 0:
            await self._plain(writer, 429, {"error": {"message": "too busy"}})
            return
        cut = bool(self.break_every) and len(self.seen) % self.break_every == 0
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if self._slots is None:
                await self._stream(path, body, writer, cut=cut)
            else:
                async with self._slots:
                    await self._stream(path, body, writer, cut=cut)
        finally:
            self.running -= 1

    async def _stream(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter, *, cut: bool) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        wanted = int(body.get("max_tokens") or body["sampling_params"]["max_new_tokens"])
        prompt = body.get("prompt", body.get("input_ids", body.get("text", "x")))
        prompt_tokens = len(prompt)
        if path.endswith("chat/completions"):
            _event(writer, {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        sent = 0
        while sent < wanted:
            step = min(self.per_chunk, wanted - sent)
            sent += step
            if self.gap_s:
                await asyncio.sleep(self.gap_s)
            self._piece(writer, path, " word" * step, sent, prompt_tokens)
            if cut and sent * 2 >= wanted:
                writer.close()
                return
            if sent % 64 == 0:
                await writer.drain()
                await asyncio.sleep(0)
        self._end(writer, path, sent, prompt_tokens)
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        await writer.drain()

    def _piece(self, writer: asyncio.StreamWriter, path: str, text: str, sent: int, prompt_tokens: int) -> None:
        if path == "/generate":
            _event(writer, {"text": text, "meta_info": {"prompt_tokens": prompt_tokens, "completion_tokens": sent, "finish_reason": None}})
        elif path.endswith("chat/completions"):
            _event(writer, {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})
        else:
            _event(writer, {"choices": [{"index": 0, "text": text, "finish_reason": None}]})

    def _end(self, writer: asyncio.StreamWriter, path: str, sent: int, prompt_tokens: int) -> None:
        if path == "/generate":
            meta = {"prompt_tokens": prompt_tokens, "completion_tokens": sent, "cached_tokens": 3, "finish_reason": {"type": "length"}}
            _event(writer, {"text": "", "meta_info": meta})
            return
        last: dict[str, Any] = {"delta": {}} if path.endswith("chat/completions") else {"text": ""}
        _event(writer, {"choices": [{"index": 0, **last, "finish_reason": "length"}]})
        _event(writer, {"choices": [], "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": sent}})

    async def _plain(self, writer: asyncio.StreamWriter, status: int, value: Any) -> None:
        raw = json.dumps(value).encode()
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n".encode() + raw)
        await writer.drain()


def _event(writer: asyncio.StreamWriter, value: Any) -> None:
    data = b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


async def serve_for_ever(port: int, model: str) -> None:
    """`python -m tests.fakes.openai_server PORT MODEL`: for tests that need the fake as a process."""
    async with FakeServer(gap_s=0.001, model=model) as server:
        assert server._server is not None
        listening = await asyncio.start_server(server._connection, "127.0.0.1", port)
        await listening.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve_for_ever(int(sys.argv[1]), sys.argv[2]))
