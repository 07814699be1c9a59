"""Runs the flights of one HTTP request: all of them, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.flight.flight import Flight
from gateway.pipeline import Pipeline


class FlightGroup:
    """Leaving the block ends whatever still runs."""

    def __init__(self, pipeline: Pipeline, flights: Sequence[Flight]) -> None:
        self.flights = flights
        self._pipeline = pipeline
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> FlightGroup:
        self._tasks = [asyncio.create_task(self._pipeline.run(flight)) for flight in self.flights]
        return self

    async def __aexit__(self, *_: object) -> None:
        running = [task for task in self._tasks if not task.done()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.gather(*running, return_exceptions=True)
        for task in self._tasks:
            if not task.cancelled():
                task.exception()  # seen, whether or not it was the first

    async def accepted(self) -> None:
        """Return once a worker has taken each of them. Raises the error of the first that is refused."""
        for flight, task in zip(self.flights, self._tasks, strict=True):
            await _any_of(task, flight.accepted)
            self._raise_first()

    async def done(self) -> None:
        """Return once all have ended well. Raises the first error."""
        while not all(task.done() for task in self._tasks):
            await _any_of(*[task for task in self._tasks if not task.done()])
            self._raise_first()
        self._raise_first()

    def cut(self, cause: str) -> None:
        """End all of them; the cause goes to the workers."""
        for flight, task in zip(self.flights, self._tasks, strict=True):
            flight.cancel_cause = cause
            task.cancel()

    def _raise_first(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()


async def _any_of(*futures: asyncio.Future[None]) -> None:
    """Return once one of them is done; they do not hear of it if the wait is cancelled. What `asyncio.wait` does, for a third."""
    if any(future.done() for future in futures):
        return
    bell = asyncio.get_running_loop().create_future()

    def ring(_: object) -> None:
        if not bell.done():
            bell.set_result(None)

    for future in futures:
        future.add_done_callback(ring)
    try:
        await bell
    finally:
        for future in futures:
            future.remove_done_callback(ring)
