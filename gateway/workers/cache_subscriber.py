"""Keeps the prefix tree equal to what the workers say they hold."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter

from gateway.clients.cache_events import CacheEventsClient, CacheFrame
from gateway.prefix.feed import WorkerFeed
from gateway.workers.registry import Registry
from gateway.workers.worker import Worker
from services.common.errors import HeadraceError

log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_SWEEP_ENTRIES = 2000
_SWEEP_PAUSE_S = 0.02
_SWEEP_IDLE_S = 0.5


class CacheSubscriber:
    """One subscription per worker, begun again whenever it ends or something is missing. Counts what happened."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.snapshots: Counter[str] = Counter()
        self.gaps: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.heard_at: dict[str, float] = {}

    async def follow(self, worker: Worker, client: CacheEventsClient) -> None:
        """Runs until cancelled."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                if await self._subscription(worker, client):
                    pause_s = _FIRST_PAUSE_S
            except HeadraceError as error:
                log.debug("cache events ended", extra={"peer": worker.address, "reason": error.message})
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def forget(self, worker: Worker) -> None:
        """The worker has left: drop its counts."""
        del self.snapshots[worker.id], self.gaps[worker.id]
        self.heard_at.pop(worker.id, None)

    async def sweep(self) -> None:
        """Clears retired entries out of the trees, a little at a time. Runs until cancelled."""
        while True:
            busy = [group.index.tree.sweep(_SWEEP_ENTRIES) for group in self._registry.groups()]
            await asyncio.sleep(_SWEEP_PAUSE_S if any(busy) else _SWEEP_IDLE_S)

    async def _subscription(self, worker: Worker, client: CacheEventsClient) -> bool:
        """True if it got as far as a complete snapshot."""
        feed: WorkerFeed | None = None
        try:
            async for frame in client.subscribe():
                if frame.info is not None and frame.info.publishes_blocks and feed is None:
                    feed = WorkerFeed(self._registry.group(frame.info.model).index.tree, worker.id)
                if not self._apply(worker, frame, feed):
                    self.gaps[worker.id] += 1
                    break
            return feed is not None and feed.synced
        finally:
            if feed is not None:
                feed.close()

    def _apply(self, worker: Worker, frame: CacheFrame, feed: WorkerFeed | None) -> bool:
        self.heard_at[worker.id] = time.monotonic()
        if frame.load is not None:
            self._registry.report_load(worker, frame.load)
        if frame.update is None or feed is None:
            return True
        for event in frame.update.events:
            self.events[type(event).__name__.lower()] += 1
        self.snapshots[worker.id] += frame.update.last
        return feed.apply(frame.update)
