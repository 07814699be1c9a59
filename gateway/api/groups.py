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
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def accepted(self) -> None:
        """Return once a worker has taken each of them. Raises the error of the first that is refused."""
        for flight, task in zip(self.flights, self._tasks, strict=True):
            await asyncio.wait({task, flight.accepted}, return_when=asyncio.FIRST_COMPLETED)
            self._raise_first()

    async def done(self) -> None:
        """Return once all have ended well. Raises the first error."""
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
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
