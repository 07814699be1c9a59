"""What the runner needs of a door."""

from __future__ import annotations

from typing import Protocol

from headrace.bench.record import BenchRequest, Outcome


class Backend(Protocol):
    """Sends requests to one server."""

    async def send(self, request: BenchRequest, outcome: Outcome) -> None:
        """Send `request`, wait for its end, fill `outcome`. Never raises for what the server does: it sets `error`."""

    async def close(self) -> None:
        """Close connections."""
