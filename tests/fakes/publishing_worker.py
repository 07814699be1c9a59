"""The parts of a worker that the gateway watches, health and cache events, on a loopback port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from protos.scheduler.v1 import cache_events_pb2 as pb
from protos.scheduler.v1 import cache_events_pb2_grpc as pb_grpc
from protos.scheduler.v1 import scheduler_pb2
from services.common.grpc_options import SERVER_OPTIONS

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """Answers Check; Watch only where `can_watch`."""

    def __init__(self) -> None:
        self.status = SERVING
        self.can_watch = True
        self.checks = 0
        self._changed = asyncio.Event()

    def set(self, status: int) -> None:
        self.status = status
        event, self._changed = self._changed, asyncio.Event()
        event.set()

    async def Check(self, request: health_pb2.HealthCheckRequest, context: object) -> health_pb2.HealthCheckResponse:
        self.checks += 1
        return health_pb2.HealthCheckResponse(status=self.status)

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        if not self.can_watch:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no watch here")
        while True:
            changed = self._changed
            yield health_pb2.HealthCheckResponse(status=self.status)
            await changed.wait()


class CacheEvents(pb_grpc.CacheEventsServicer):
    """Publishes a set of blocks; `skip` makes the next change go unsaid."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.publishes_blocks = True
        self.blocks: list[int] = []
        self.epoch, self.seq = 1, 0
        self.load = scheduler_pb2.Load()
        self.subscribers = 0
        self._queues: set[asyncio.Queue[pb.CacheUpdate | None]] = set()

    def change(self, stored: list[int], removed: list[int], *, skip: bool = False) -> None:
        self.blocks = [block for block in self.blocks if block not in set(removed)] + stored
        events = [
            pb.CacheEvent(stored=pb.Blocks(hashes=stored, tier=pb.TIER_DEVICE)),
            pb.CacheEvent(removed=pb.Removed(hashes=removed, tier=pb.TIER_DEVICE)),
        ]
        update = pb.CacheUpdate(epoch=self.epoch, seq=self.seq, events=events)
        self.seq += len(events)
        for queue in () if skip else self._queues:
            queue.put_nowait(update)

    def report(self, **load: float) -> None:
        for queue in self._queues:
            queue.put_nowait(pb.CacheUpdate(epoch=self.epoch, seq=self.seq, load=scheduler_pb2.Load(**load)))  # type: ignore[arg-type]

    def hang_up(self) -> None:
        for queue in self._queues:
            queue.put_nowait(None)

    async def Subscribe(self, request: pb.SubscribeRequest, context: object) -> AsyncIterator[pb.CacheUpdate]:
        self.subscribers += 1
        queue: asyncio.Queue[pb.CacheUpdate | None] = asyncio.Queue()
        info = pb.CacheInfo(model=self.model, block_size=16, publishes_blocks=self.publishes_blocks)
        for update in self._snapshot(info):
            queue.put_nowait(update)
        self._queues.add(queue)
        try:
            while (found := await queue.get()) is not None:
                yield found
        finally:
            self._queues.discard(queue)

    def _snapshot(self, info: pb.CacheInfo) -> list[pb.CacheUpdate]:
        if not self.publishes_blocks:
            return [pb.CacheUpdate(info=info, load=self.load)]
        halves = [self.blocks[: len(self.blocks) // 2], self.blocks[len(self.blocks) // 2 :]]
        return [
            pb.CacheUpdate(
                epoch=self.epoch,
                seq=self.seq,
                info=info if i == 0 else None,
                snapshot=pb.SnapshotPart(blocks=[pb.Blocks(hashes=half, tier=pb.TIER_DEVICE)], last=i == 1, index=i),
            )
            for i, half in enumerate(halves)
        ]


class PublishingWorker:
    """Start, stop and start again on one port."""

    def __init__(self, model: str = "m") -> None:
        self.health = Health()
        self.cache = CacheEvents(model)
        self.port = 0
        self._server: grpc.aio.Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = grpc.aio.server(options=list(SERVER_OPTIONS))
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self._server)
        pb_grpc.add_CacheEventsServicer_to_server(self.cache, self._server)  # type: ignore[no-untyped-call]
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    async def restart(self) -> None:
        """A new process: nothing cached, numbers begin anew."""
        await self.stop()
        self.cache.epoch += 1
        self.cache.seq, self.cache.blocks = 0, []
        await self.start()
