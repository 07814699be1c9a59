"""What the prefix cache holds, streamed to whoever routes by it: a snapshot, then every change, and the load."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from protos.scheduler.v1 import cache_events_pb2 as pb
from protos.scheduler.v1 import cache_events_pb2_grpc as pb_grpc
from protos.scheduler.v1 import scheduler_pb2
from services.common.errors import Overloaded, Unavailable
from services.common.grpc_errors import abort
from services.common.metrics import Metrics
from services.scheduler.cache.events import CacheEvents, CacheSnapshot, Removed, Stored
from services.scheduler.convert.events import event_updates, snapshot_updates

_Context = grpc.aio.ServicerContext[Any, Any]
_MOST_PENDING_EVENTS = 50_000
_LEAST_LOAD_INTERVAL_S = 0.05
_DEFAULT_LOAD_INTERVAL_S = 0.5


class _Subscriber:
    """Events not yet sent to one subscriber."""

    def __init__(self) -> None:
        self.pending: list[CacheEvents] = []
        self.count = 0
        self.wake = asyncio.Event()

    def add(self, events: CacheEvents) -> None:
        self.pending.append(events)
        self.count += len(events.events)
        self.wake.set()

    def take(self) -> list[CacheEvents]:
        taken, self.pending, self.count = self.pending, [], 0
        return taken


class CacheServicer(pb_grpc.CacheEventsServicer):
    """Fans the engine's events out. A subscriber that falls too far behind is cut off and begins again."""

    def __init__(self, metrics: Metrics) -> None:
        self._subscribers: set[_Subscriber] = set()
        self._info: pb.CacheInfo | None = None
        self._snapshot: Callable[[], Awaitable[CacheSnapshot]] | None = None
        self._load: Callable[[], scheduler_pb2.Load] | None = None
        self._snapshots = metrics.counter("headrace_worker_cache_snapshots_total")
        self._events = {kind: metrics.counter("headrace_worker_cache_events_total", kind=kind) for kind in ("stored", "removed", "cleared")}
        metrics.gauge("headrace_worker_cache_subscribers").read(lambda: len(self._subscribers))

    def open_for_business(
        self, info: pb.CacheInfo, snapshot: Callable[[], Awaitable[CacheSnapshot]], load: Callable[[], scheduler_pb2.Load]
    ) -> None:
        """Everything is loaded."""
        self._info, self._snapshot, self._load = info, snapshot, load

    def publish(self, events: CacheEvents) -> None:
        """Queue a turn's events for every subscriber."""
        for event in events.events:
            kind = "stored" if isinstance(event, Stored) else "removed" if isinstance(event, Removed) else "cleared"
            self._events[kind].inc()
        for subscriber in self._subscribers:
            subscriber.add(events)

    async def Subscribe(self, request: pb.SubscribeRequest, context: _Context) -> AsyncIterator[pb.CacheUpdate]:
        info, snapshot, load = self._info, self._snapshot, self._load
        if info is None or snapshot is None or load is None:
            await abort(context, Unavailable("the model is being loaded", code="loading"))
        subscriber = _Subscriber()
        self._subscribers.add(subscriber)
        try:
            yield pb.CacheUpdate(info=info, load=load())
            if info.publishes_blocks:
                for update in snapshot_updates(await snapshot()):
                    yield update
                self._snapshots.inc()
            interval = max(
                _LEAST_LOAD_INTERVAL_S, request.load_interval_ms / 1000 if request.load_interval_ms else _DEFAULT_LOAD_INTERVAL_S
            )
            async for update in self._changes(subscriber, interval, load):
                if subscriber.count > _MOST_PENDING_EVENTS:
                    await abort(context, Overloaded("the subscriber fell too far behind; subscribe again"))
                yield update
        finally:
            self._subscribers.discard(subscriber)

    @staticmethod
    async def _changes(subscriber: _Subscriber, interval: float, load: Callable[[], scheduler_pb2.Load]) -> AsyncIterator[pb.CacheUpdate]:
        """Events as they come; the load at most once per interval, and only when it has changed or events flow."""
        loop = asyncio.get_running_loop()
        next_load, last_load = loop.time() + interval, b""
        while True:
            try:
                await asyncio.wait_for(subscriber.wake.wait(), max(0.0, next_load - loop.time()))
            except TimeoutError:
                current = load()
                next_load = loop.time() + interval
                said = current.SerializeToString(deterministic=True)
                if said != last_load:
                    last_load = said
                    yield pb.CacheUpdate(load=current)
                continue
            subscriber.wake.clear()
            for events in subscriber.take():
                for update in event_updates(events):
                    yield update
