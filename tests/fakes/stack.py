"""A whole gateway on loopback, with fakes around it, in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from gateway.app import GatewayApp
from gateway.config import GatewayConfig
from services.common.config import Sources
from tests.fakes.detokenizer_server import DetokenizerServer
from tests.fakes.fake_tokenizer import FakeTokenizer
from tests.fakes.fake_worker import FakeWorker


class Stack:
    """`workers` fake workers, a fake tokenizer, the real detokenizer, and the gateway under test."""

    def __init__(self, workers: int | list[FakeWorker] = 1, **settings: Any) -> None:
        self.tokenizer = FakeTokenizer()
        self.detokenizer = DetokenizerServer()
        self.workers = [FakeWorker() for _ in range(workers)] if isinstance(workers, int) else workers
        self._settings = settings
        self._http: aiohttp.ClientSession | None = None
        self.app: GatewayApp

    @property
    def worker(self) -> FakeWorker:
        """The first worker."""
        return self.workers[0]

    @property
    def http(self) -> aiohttp.ClientSession:
        """A client."""
        assert self._http is not None
        return self._http

    @property
    def url(self) -> str:
        """Where the REST door is."""
        return f"http://127.0.0.1:{self.app.port}"

    async def start(self) -> None:
        """Start all, and wait until the gateway is ready."""
        defaults: dict[str, Any] = {
            "port": 0,
            "grpc_port": 0,
            "metrics_port": -2,
            "policy": "round_robin",
            "hold_secs": 5.0,
            "tokenizer": (await self.tokenizer.start(),),
            "detokenizer": (await self.detokenizer.start(),),
            "workers": tuple([await worker.start() for worker in self.workers]),
        }
        config = GatewayConfig(**(defaults | self._settings))
        self.app = GatewayApp(config, Sources({}))
        await self.app.start()
        self._http = aiohttp.ClientSession()
        for _ in range(400):
            ready = len(self.app.parts.registry.ready()) == len(self.workers)
            async with self.http.get(self.url + "/ready") as answer:
                if answer.status == 200 and ready:
                    return
            await asyncio.sleep(0.02)
        raise AssertionError("the gateway did not become ready")

    async def stop(self) -> None:
        """Stop all."""
        if self._http is not None:
            await self._http.close()
        await self.app.close()
        await self.app.host.server.stop(None)
        for worker in self.workers:
            await worker.stop()
        await self.detokenizer.stop()
        await self.tokenizer.stop()

    async def post(self, path: str, body: Any, **kwargs: Any) -> tuple[int, Any]:
        """Status and parsed answer."""
        async with self.http.post(self.url + path, json=body, **kwargs) as answer:
            return answer.status, await answer.json(content_type=None)

    async def get(self, path: str, **kwargs: Any) -> tuple[int, Any]:
        """Status and parsed answer."""
        async with self.http.get(self.url + path, **kwargs) as answer:
            return answer.status, await answer.json(content_type=None)

    async def events(self, path: str, body: Any, **kwargs: Any) -> list[str]:
        """The data of all server-sent events. Fails if the stream is not well formed."""
        async with self.http.post(self.url + path, json=body, **kwargs) as answer:
            raw = await answer.read()
            assert answer.status == 200, raw
            assert answer.content_type == "text/event-stream"
        text = raw.decode()
        assert text.endswith("\n\n")
        blocks = [block for block in text.split("\n\n") if block and not block.startswith(":")]
        assert all(block.startswith("data: ") for block in blocks)
        return [block.removeprefix("data: ") for block in blocks]


@contextlib.asynccontextmanager
async def running(workers: int | list[FakeWorker] = 1, **settings: Any) -> AsyncIterator[Stack]:
    """A started stack."""
    stack = Stack(workers, **settings)
    try:
        await stack.start()
        yield stack
    finally:
        await stack.stop()


async def until(condition: Any, seconds: float = 5.0) -> None:
    """Wait for something to become true."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
