"""Watches each worker's health service and tells the registry.

Watch reports a change at once. Where a server lacks it, Check is called every `interval_s`; then a worker that was out of
service needs `successes` good answers in a row, because one may be luck.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gateway.clients.health import HealthClient, WatchUnsupported
from gateway.workers.registry import Registry
from gateway.workers.worker import Worker
from services.common.errors import HeadraceError


@dataclass(frozen=True, slots=True)
class HealthSettings:
    """Seconds, and answers in a row. retry_s: pause after a lost watch, doubled up to interval_s."""

    interval_s: float = 60.0
    timeout_s: float = 5.0
    successes: int = 2
    retry_s: float = 0.2
    slowest_retry_s: float = 5.0


async def watch_health(registry: Registry, worker: Worker, client: HealthClient, settings: HealthSettings) -> None:
    """Runs until cancelled."""
    pause_s = settings.retry_s
    while True:
        try:
            async for serving in client.watch():
                pause_s = settings.retry_s
                registry.health_told(worker, serving)
        except WatchUnsupported:
            await _poll(registry, worker, client, settings)
        except HeadraceError as error:
            registry.unreachable(worker, error.message)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, settings.slowest_retry_s)


async def _poll(registry: Registry, worker: Worker, client: HealthClient, settings: HealthSettings) -> None:
    """Asks until the worker cannot be reached: what comes back may know Watch."""
    good = settings.successes - 1
    while True:
        try:
            serving = await client.check(settings.timeout_s)
        except HeadraceError as error:
            registry.unreachable(worker, error.message)
            return
        good = good + 1 if serving else 0
        registry.health_told(worker, good >= settings.successes)
        await asyncio.sleep(settings.interval_s)
