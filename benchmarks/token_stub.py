"""A server that only streams: one token per stream and tick, from bytes made beforehand.

    python -m benchmarks.token_stub --port 30000 --tick-ms 3.2

Speaks as much of the OpenAI completions API as a load generator needs. With a tick of 0 it sends as fast as it can.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import cast

import uvloop

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_PLAIN = b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
_GET = {b"/v1/models": b'{"data": [{"id": "stub"}]}', b"/version": b'{"version": "stub"}'}
_BURST = 32  # tokens written to a stream at once without a tick


def chunk(value: object) -> bytes:
    """An SSE event as one chunk of a body."""
    data = b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


_TOKEN = chunk(
    {"id": "cmpl-0", "object": "text_completion", "model": "stub", "choices": [{"index": 0, "text": " water", "finish_reason": None}]}
)
_STOP = chunk(
    {"id": "cmpl-0", "object": "text_completion", "model": "stub", "choices": [{"index": 0, "text": "", "finish_reason": "length"}]}
)


class Stream(asyncio.Protocol):
    """One connection; `join` and `leave` put it among those that get tokens."""

    def __init__(self, join: Callable[[Stream], None]) -> None:
        self._join = join
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self.left = 0
        self._end = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.left, self._transport = 0, None

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        lengths = [line.partition(b":")[2] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
        length = int(lengths[0]) if lengths else 0
        if found and len(body) >= length:
            self._buffer = body[length:]
            self._answer(head.split(b" ", 2)[1], body[:length])

    def _answer(self, path: bytes, body: bytes) -> None:
        assert self._transport is not None
        if not body:
            known = _GET.get(path)
            self._transport.write(_PLAIN % (200 if known else 404, len(known or b""), known or b""))
            return
        asked = json.loads(body)
        usage = {"prompt_tokens": len(asked["prompt"]), "completion_tokens": asked["max_tokens"]}
        self._end = _STOP + chunk({"choices": [], "usage": usage}) + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
        self.left = int(asked["max_tokens"])
        self._transport.write(_HEAD)
        self._join(self)

    def send(self, most: int) -> bool:
        """The next tokens; False after the last."""
        if self._transport is None:
            return False
        now = min(most, self.left)
        self.left -= now
        self._transport.write(_TOKEN * now if self.left else _TOKEN * now + self._end)
        return self.left > 0


async def serve(port: int, tick_s: float) -> None:
    """Until the process is ended."""
    loop = asyncio.get_running_loop()
    streams: list[Stream] = []
    await loop.create_server(partial(Stream, streams.append), "127.0.0.1", port)
    due = loop.time()
    while True:
        due = max(due + tick_s, loop.time() - 1.0)
        await asyncio.sleep(max(0.0, due - loop.time()))
        streams[:] = [stream for stream in streams if stream.send(1 if tick_s else _BURST)]


def main() -> None:
    """Read the flags and serve."""
    parser = argparse.ArgumentParser(description="a server that only streams")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tick-ms", type=float, default=3.2)
    options = parser.parse_args()
    uvloop.run(serve(options.port, options.tick_ms / 1e3))


if __name__ == "__main__":
    main()
