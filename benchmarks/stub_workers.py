"""Workers that compute nothing: a first token after a scripted delay, then one every so many milliseconds.

    python -m benchmarks.stub_workers --kind grpc --ports 40100 40101 --delay-ms 50 --gap-ms 10 --tokens ids.json
    python -m benchmarks.stub_workers --kind http --ports 40200

`grpc` speaks the worker contract (Session, health, cache events without blocks), all streams of a tick in one frame as a
real worker sends them. `http` streams OpenAI chat chunks with as little work as Python allows, for routers that pass bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import grpc
import uvloop
from grpc_health.v1 import health_pb2, health_pb2_grpc

from protos.scheduler.v1 import cache_events_pb2 as events_pb
from protos.scheduler.v1 import cache_events_pb2_grpc as events_grpc
from protos.scheduler.v1 import scheduler_pb2 as pb
from protos.scheduler.v1 import scheduler_pb2_grpc as pb_grpc
from services.common.grpc_options import SERVER_OPTIONS
from services.common.version import PROTOCOL


@dataclass(frozen=True)
class Script:
    """What every stream does. ids: tokens to repeat; digests must be what the other services report."""

    delay_s: float
    gap_s: float
    ids: tuple[int, ...] = (1,)
    model: str = "stub"
    tokenizer_digest: str = ""


@dataclass
class Stream:
    """One choice on its way."""

    handle: int
    limit: int
    prompt_tokens: int
    position: int = 0
    source: itertools.cycle[int] = field(default_factory=lambda: itertools.cycle((1,)))


class StubScheduler(pb_grpc.SchedulerServicer):
    """Sessions only."""

    def __init__(self, script: Script, boot_id: str) -> None:
        self._script = script
        self._boot_id = boot_id

    async def Session(self, requests: AsyncIterator[pb.ToWorker], context: object) -> AsyncIterator[pb.FromWorker]:
        session = _Session(self._script)
        reader = asyncio.create_task(session.read(requests))
        ticker = asyncio.create_task(session.tick())
        yield pb.FromWorker(welcome=self._welcome())
        try:
            while (frame := await session.out.get()) is not None:
                yield frame
        finally:
            reader.cancel()
            ticker.cancel()

    def _welcome(self) -> pb.Welcome:
        return pb.Welcome(
            protocol=PROTOCOL,
            boot_id=self._boot_id,
            model=self._script.model,
            model_digest="stub",
            tokenizer_digest=self._script.tokenizer_digest,
            block_size=16,
            context_tokens=1 << 20,
            vocab_size=1 << 20,
            pool_tokens=1 << 24,
            max_frame_bytes=256 * 1024,
        )


class _Session:
    def __init__(self, script: Script) -> None:
        self._script = script
        self._streams: dict[int, Stream] = {}
        self._seq = itertools.count()
        self.out: asyncio.Queue[pb.FromWorker | None] = asyncio.Queue()

    async def read(self, requests: AsyncIterator[pb.ToWorker]) -> None:
        loop = asyncio.get_running_loop()
        async for frame in requests:
            for submit in frame.submit:
                for i, choice in enumerate(submit.choices):
                    stream = Stream(submit.handle_base + i, submit.stops.max_new_tokens, submit.prompt.total_tokens or 1)
                    stream.position = len(choice.prior_output_ids)
                    stream.source = itertools.cycle(self._script.ids)
                    self.out.put_nowait(pb.FromWorker(seq=next(self._seq), accepted=[pb.Accepted(handle=stream.handle)]))
                    loop.call_later(self._script.delay_s, self._begin, stream)
            for cancel in frame.cancel:
                cancelled = self._streams.pop(cancel.handle, None)
                if cancelled is not None:
                    self.out.put_nowait(pb.FromWorker(seq=next(self._seq), final=[_final(cancelled, pb.FINISH_REASON_ABORT)]))
        self.out.put_nowait(None)

    def _begin(self, stream: Stream) -> None:
        started = pb.Started(handle=stream.handle, prompt_tokens=stream.prompt_tokens)
        self.out.put_nowait(pb.FromWorker(seq=next(self._seq), started=[started]))
        self._streams[stream.handle] = stream
        self._emit([stream])

    async def tick(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due += self._script.gap_s
            await asyncio.sleep(max(0.0, due - loop.time()))
            if self._streams:
                self._emit(list(self._streams.values()))

    def _emit(self, streams: list[Stream]) -> None:
        step = pb.Step(
            handle=[s.handle for s in streams],
            first_position=[s.position for s in streams],
            count=[1] * len(streams),
            token_ids=[next(s.source) for s in streams],
        )
        frame = pb.FromWorker(seq=next(self._seq), step=step)
        for stream in streams:
            stream.position += 1
            if stream.position >= stream.limit:
                self._streams.pop(stream.handle, None)
                frame.final.append(_final(stream, pb.FINISH_REASON_LENGTH))
        self.out.put_nowait(frame)


def _final(stream: Stream, reason: pb.FinishReason) -> pb.Final:
    usage = pb.Usage(prompt_tokens=stream.prompt_tokens, completion_tokens=stream.position)
    return pb.Final(handle=stream.handle, reason=reason, end_position=stream.position, usage=usage)


class StubCacheEvents(events_grpc.CacheEventsServicer):
    """Says that no blocks are published, then nothing."""

    def __init__(self, model: str) -> None:
        self._model = model

    async def Subscribe(self, request: object, context: object) -> AsyncIterator[events_pb.CacheUpdate]:
        yield events_pb.CacheUpdate(info=events_pb.CacheInfo(model=self._model, block_size=16))
        await asyncio.Event().wait()


class AlwaysServing(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """Health of a worker that is never ill."""

    async def Check(self, request: object, context: object) -> health_pb2.HealthCheckResponse:
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)

    async def Watch(self, request: object, context: object) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        yield health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)
        await asyncio.Event().wait()


async def serve_grpc(script: Script, ports: list[int]) -> None:
    """Serve the contract on each port until killed."""
    servers = []
    for port in ports:
        server = grpc.aio.server(options=list(SERVER_OPTIONS))
        pb_grpc.add_SchedulerServicer_to_server(StubScheduler(script, f"stub-{port}"), server)  # type: ignore[no-untyped-call]
        events_grpc.add_CacheEventsServicer_to_server(StubCacheEvents(script.model), server)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(AlwaysServing(), server)
        server.add_insecure_port(f"127.0.0.1:{port}")
        await server.start()
        servers.append(server)
    print("ready", flush=True)
    await asyncio.gather(*(server.wait_for_termination() for server in servers))


class HttpStub(asyncio.Protocol):
    """Chat completions over HTTP/1.1, one connection, requests one after another. A ticker shared by all writes the chunks."""

    active: dict[HttpStub, int] = {}  # noqa: RUF012
    script = Script(0.05, 0.01)
    CHUNK = (
        b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"stub",'
        b'"choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}\n\n'
    )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.buffer = b""

    def connection_lost(self, exc: Exception | None) -> None:
        HttpStub.active.pop(self, None)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (request := self._next_request()) is not None:
            self._answer(*request)

    def _next_request(self) -> tuple[str, bytes] | None:
        head, split, rest = self.buffer.partition(b"\r\n\r\n")
        if not split:
            return None
        length = next((int(h.split(b":")[1]) for h in head.split(b"\r\n") if h.lower().startswith(b"content-length")), 0)
        if len(rest) < length:
            return None
        self.buffer = rest[length:]
        return head.split(b" ", 2)[1].decode(), rest[:length]

    def _answer(self, path: str, body: bytes) -> None:
        if path.startswith("/v1/chat/completions"):
            asked = json.loads(body)
            limit = int(asked.get("max_completion_tokens") or asked["max_tokens"])
            asyncio.get_running_loop().call_later(self.script.delay_s, self._begin, limit)
            return
        info = json.dumps({"model_path": "stub", "model_id": "stub", "is_generation": True, "status": "ok"}).encode()
        self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(info), info))

    def _begin(self, limit: int) -> None:
        self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        HttpStub.active[self] = limit
        self.step()

    def step(self) -> None:
        """Write one chunk, and the end after the last."""
        self.transport.write(b"%x\r\n%b\r\n" % (len(self.CHUNK), self.CHUNK))
        HttpStub.active[self] -= 1
        if HttpStub.active[self] <= 0:
            del HttpStub.active[self]
            self.transport.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


async def serve_http(script: Script, ports: list[int]) -> None:
    """Serve chat completions on each port until killed."""
    HttpStub.script = script
    loop = asyncio.get_running_loop()
    for port in ports:
        await loop.create_server(HttpStub, "127.0.0.1", port, backlog=1024)
    print("ready", flush=True)
    due = loop.time()
    while True:
        due += script.gap_s
        await asyncio.sleep(max(0.0, due - loop.time()))
        for stub in list(HttpStub.active):
            stub.step()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description="stub workers")
    parser.add_argument("--kind", choices=("grpc", "http"), required=True)
    parser.add_argument("--ports", type=int, nargs="+", required=True)
    parser.add_argument("--delay-ms", type=float, default=50.0)
    parser.add_argument("--gap-ms", type=float, default=10.0)
    parser.add_argument("--script", type=Path, help="JSON file with ids, model and tokenizer_digest")
    options = parser.parse_args()
    extra = json.loads(options.script.read_text()) if options.script else {}
    if "ids" in extra:
        extra["ids"] = tuple(extra["ids"])
    script = Script(options.delay_ms / 1000, options.gap_ms / 1000, **extra)
    serve = serve_grpc if options.kind == "grpc" else serve_http
    uvloop.run(serve(script, options.ports))


if __name__ == "__main__":
    main()
