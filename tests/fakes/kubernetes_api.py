"""A Kubernetes API server that serves EndpointSlices and can misbehave as real ones do."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web

Json = dict[str, Any]


def endpoint_slice(name: str, version: int, *addresses: str, port: int = 30100, **conditions: Any) -> Json:
    """A slice whose endpoints share their conditions; `deleted=True` sets the deletion timestamp."""
    metadata: Json = {"name": name, "resourceVersion": str(version)}
    if conditions.pop("deleted", False):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {
        "metadata": metadata,
        "addressType": "IPv4",
        "ports": [{"name": "metrics", "port": 9}, {"name": "grpc", "port": port}],
        "endpoints": [{"addresses": [a], "conditions": {"ready": True, **conditions}} for a in addresses],
    }


class FakeKubernetes:
    """`slices` is what a listing shows; `send` writes an event to the watches that are open."""

    def __init__(self) -> None:
        self.slices: dict[str, Json] = {}
        self.version = 1
        self.lists = 0
        self.watches = 0
        self.refuse: int | None = None
        self.expired_below = 0
        self.silent = False
        self.queries: list[dict[str, str]] = []
        self._open: set[asyncio.Queue[str | None]] = set()
        self._watched = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices", self._endpoint_slices)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        await self.hang_up()
        if self._runner is not None:
            await self._runner.cleanup()

    def put(self, item: Json) -> None:
        """Change what listings show, without an event."""
        self.version = max(self.version, int(item["metadata"]["resourceVersion"]))
        self.slices[item["metadata"]["name"]] = item

    def delete(self, name: str) -> None:
        del self.slices[name]
        self.version += 1

    async def send(self, kind: str, item: Json) -> None:
        """An event to every open watch; listings are not touched."""
        for queue in self._open:
            queue.put_nowait(json.dumps({"type": kind, "object": item}) + "\n")
        await asyncio.sleep(0.05)

    async def hang_up(self) -> None:
        """End every open watch."""
        for queue in list(self._open):
            queue.put_nowait(None)
        await asyncio.sleep(0.05)

    async def watched(self) -> None:
        """Returns when at least one watch is open."""
        async with asyncio.timeout(30):
            await self._watched.wait()

    async def _endpoint_slices(self, request: web.Request) -> web.StreamResponse:
        self.queries.append(dict(request.query))
        if self.silent:
            await asyncio.sleep(3600)
        if self.refuse is not None:
            return web.json_response({"kind": "Status", "message": "refused", "code": self.refuse}, status=self.refuse)
        if request.query.get("watch") in ("true", "True"):
            return await self._watch(request)
        self.lists += 1
        items = list(self.slices.values())
        return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": items})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self.watches += 1
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if int(request.query.get("resourceVersion", "0")) < self.expired_below:
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
            await response.write((json.dumps({"type": "ERROR", "object": gone}) + "\n").encode())
            return response
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._open.add(queue)
        self._watched.set()
        try:
            while (line := await queue.get()) is not None:
                await response.write(line.encode())
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(queue)
            if not self._open:
                self._watched.clear()
        return response
