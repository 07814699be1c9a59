"""How late the asyncio loop runs, the first sign that something blocks it, and how many tasks it holds."""

from __future__ import annotations

import asyncio
import time

from services.common.metrics import Metrics

_INTERVAL_S = 0.5


async def watch_loop(metrics: Metrics) -> None:
    """Observe the lateness of a timer, and how many tasks there are, until cancelled."""
    lag = metrics.histogram("headrace_event_loop_lag_seconds")
    tasks = metrics.gauge("headrace_asyncio_tasks")
    while True:
        due = time.perf_counter() + _INTERVAL_S
        await asyncio.sleep(_INTERVAL_S)
        lag.observe(max(0.0, time.perf_counter() - due))
        tasks.set(len(asyncio.all_tasks()))
