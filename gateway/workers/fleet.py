"""Runs what has to run per worker: its health watch and its cache subscription."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from gateway.clients.cache_events import CacheEventsClient
from gateway.clients.health import HealthClient
from gateway.workers.cache_subscriber import CacheSubscriber
from gateway.workers.health import HealthSettings, watch_health
from gateway.workers.registry import Registry
from gateway.workers.worker import Worker, WorkerState
from services.common.server_config import ServerConfig


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """load_interval_ms: how often workers report their load at most."""

    health: HealthSettings = field(default_factory=HealthSettings)
    load_interval_ms: int = 100


class FleetWatcher:
    """Observer of the registry. `subscriber` names this gateway process to the workers."""

    def __init__(self, registry: Registry, settings: FleetSettings, *, trust: ServerConfig | None, subscriber: str) -> None:
        self._registry = registry
        self._settings = settings
        self._trust = trust
        self._subscriber = subscriber
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self._sweeping: asyncio.Task[None] | None = None
        self.cache = CacheSubscriber(registry)

    def start(self) -> None:
        """Follow the registry from now on."""
        self._registry.observe(self)
        self._sweeping = asyncio.create_task(self.cache.sweep(), name="prefix tree sweep")

    async def close(self) -> None:
        """Stop watching."""
        tasks = [task for per_worker in self._tasks.values() for task in per_worker]
        self._tasks.clear()
        if self._sweeping is not None:
            tasks.append(self._sweeping)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def worker_added(self, worker: Worker) -> None:
        """Begin to watch it."""
        health = HealthClient(worker.address, self._trust)
        cache = CacheEventsClient(
            worker.address, self._trust, subscriber=self._subscriber, load_interval_ms=self._settings.load_interval_ms
        )
        self._tasks[worker.id] = [
            asyncio.create_task(_closing(health, watch_health(self._registry, worker, health, self._settings.health))),
            asyncio.create_task(_closing(cache, self.cache.follow(worker, cache))),
        ]

    def worker_removed(self, worker: Worker) -> None:
        """Stop watching it."""
        for task in self._tasks.pop(worker.id, []):
            task.cancel()
        self.cache.forget(worker)

    def worker_changed(self, worker: Worker, before: WorkerState) -> None:
        """Nothing to do: a worker is watched in every state."""


async def _closing(client: HealthClient | CacheEventsClient, work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    finally:
        await client.close()
