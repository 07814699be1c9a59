"""A load of concurrent chat streams that costs little itself: one raw HTTP/1.1 connection per stream, bytes counted.

    python -m benchmarks.stream_client --port 30000 --model m --streams 256 --tokens 200 --rounds 2 --prompts prompts.json

Streams begin spread over one request's length, and each sends its requests one after another. Prints one JSON object:
chunks, seconds, and time to first chunk of every request in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from pathlib import Path
from typing import cast

import uvloop

EVENT = b"data: "
DONE = b"data: [DONE]"


class Stream(asyncio.Protocol):
    """One connection; `ask` sends a request and resolves when its stream has ended."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.firsts: list[float] = []
        self.chunks = 0
        self.failed: list[str] = []
        self._done: asyncio.Future[None] | None = None
        self._asked = 0.0
        self._waiting = False
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self.failed.append("connection lost")
            self._done.set_result(None)

    def data_received(self, data: bytes) -> None:
        if b"HTTP/1.1 " in data and b"HTTP/1.1 200" not in data:
            self.failed.append(data[:200].decode(errors="replace"))
            self._finish()
            return
        if self._waiting and b'"content":"' in data and b'"content":""' not in data:
            self._waiting = False
            self.firsts.append(1000 * (time.perf_counter() - self._asked))
        self.chunks += data.count(EVENT)
        if DONE in self._tail + data:
            self.chunks -= 1
            self._finish()
        else:
            self._tail = data[-len(DONE) :]

    async def ask(self, request: bytes) -> None:
        """Send a request and wait for the end of its answer."""
        assert self.transport is not None
        self._done = asyncio.get_running_loop().create_future()
        self._tail = b""
        self._waiting = True
        self._asked = time.perf_counter()
        self.transport.write(request)
        await self._done

    def _finish(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)


def request_bytes(model: str, prompt: str, tokens: int, api_key: str) -> bytes:
    """A streamed chat request of exactly `tokens` tokens."""
    body = json.dumps(
        {
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": tokens,
            "stream": True,
            "temperature": 0,
            "ignore_eos": True,
        }
    ).encode()
    auth = f"authorization: Bearer {api_key}\r\n" if api_key else ""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{auth}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def run(options: argparse.Namespace) -> dict[str, object]:
    """All streams; see the module's text for what is returned."""
    loop = asyncio.get_running_loop()
    prompts = json.loads(options.prompts.read_text())
    streams: list[Stream] = []

    async def one(number: int) -> None:
        await asyncio.sleep(options.spread * number / options.streams)
        _, stream = await loop.create_connection(Stream, "127.0.0.1", options.port)
        streams.append(stream)
        for i in range(options.rounds):
            prompt = prompts[(number * options.rounds + i) % len(prompts)]
            await stream.ask(request_bytes(options.model, prompt, options.tokens, options.api_key))
            if stream.failed:
                break
        assert stream.transport is not None
        stream.transport.close()

    began = time.perf_counter()
    await asyncio.gather(*(one(i) for i in range(options.streams)))
    return {
        "seconds": time.perf_counter() - began,
        "chunks": sum(stream.chunks for stream in streams),
        "first_ms": [first for stream in streams for first in stream.firsts],
        "failed": [why for stream in streams for why in stream.failed],
    }


def main() -> None:
    """Run the load and print what was seen."""
    parser = argparse.ArgumentParser(description="a load of chat streams")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default="stub")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--spread", type=float, default=2.0, help="seconds over which streams begin")
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--api-key", default="")
    print(json.dumps(uvloop.run(run(parser.parse_args()))))


if __name__ == "__main__":
    main()
