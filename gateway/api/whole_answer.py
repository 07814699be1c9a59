"""An answer sent as one JSON body."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.api.context import Caller
from gateway.api.groups import FlightGroup
from gateway.flight.flight import Flight
from services.common.errors import Cancelled, HeadraceError


async def run_whole(who: Caller, door: str, model: str, flights: Sequence[Flight]) -> None:
    """Return when all flights have ended well. Cancellation, as by a client that hangs up, ends them at once."""
    doors = who.doors
    error: HeadraceError | None = None
    doors.recorder.began(flights, streaming=False, model=model)
    try:
        if len(flights) == 1:
            await doors.pipeline.run(flights[0])
        else:
            async with FlightGroup(doors.pipeline, flights) as group:
                await group.done()
    except asyncio.CancelledError:
        error = Cancelled("the client has gone")
        raise
    except HeadraceError as refused:
        error = refused
        raise
    finally:
        doors.recorder.ended(door, flights, error, streaming=False, model=model)
