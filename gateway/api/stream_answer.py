"""A streamed answer from the first word of the workers to the last event."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from aiohttp import web

from gateway.api.connection import SERVER
from gateway.api.context import Caller
from gateway.api.errors import as_headrace, dumps
from gateway.api.groups import FlightGroup
from gateway.api.later import Later
from gateway.api.middleware import cors_headers
from gateway.api.sse import DONE, SseStream
from gateway.flight.flight import Flight
from services.common.errors import Cancelled, HeadraceError

ErrorBody = Callable[[HeadraceError], object]


@dataclass(frozen=True, slots=True)
class Streamed:
    """What a door has prepared. finale: events after the last choice, before [DONE]. later: delayed listeners, if any.

    after: an event that has to be waited for, before those of the finale.
    """

    door: str
    model: str
    flights: Sequence[Flight]
    finale: Callable[[], bytes]
    error_body: ErrorBody
    later: Sequence[Later] = field(default=())
    after: Callable[[], Awaitable[bytes]] | None = None


class StreamAnswer:
    """Made before the flights, because their listeners write to it."""

    def __init__(self, request: web.Request, who: Caller) -> None:
        self._request = request
        self._who = who
        self._group: FlightGroup | None = None
        self.sse = SseStream(request, who.doors.keeper, self._cut)

    def _cut(self) -> None:
        if self._group is not None:
            self._group.cut("SLOW_CONSUMER")

    async def run(self, streamed: Streamed) -> web.StreamResponse:
        """Answer. Raises the error of a request that is refused before its first byte."""
        doors = self._who.doors
        error: HeadraceError | None = None
        doors.recorder.began(streamed.flights, streaming=True, model=streamed.model)
        try:
            async with FlightGroup(doors.pipeline, streamed.flights) as self._group:
                await self._group.accepted()
                await self.sse.open(self._headers(streamed.flights[0]))
                error = await self._deliver(streamed)
            return await self.sse.close()
        except asyncio.CancelledError:
            error = Cancelled("the client has gone")
            raise
        except HeadraceError as refused:
            error = refused
            raise
        finally:
            self.sse.abandon()
            doors.recorder.ended(streamed.door, streamed.flights, error, streaming=True, model=streamed.model)

    async def _deliver(self, streamed: Streamed) -> HeadraceError | None:
        """Everything between headers and end; an error is told in the stream."""
        assert self._group is not None
        delivering = [asyncio.create_task(later.run()) for later in streamed.later]
        try:
            await self._group.done()
            for later in streamed.later:
                later.end()
            await asyncio.gather(*delivering)
            if streamed.after is not None:
                self.sse.write(await streamed.after())
        except asyncio.CancelledError:
            if not self.sse.cut:
                raise
            return Cancelled("the client does not read")
        except Exception as problem:
            error = as_headrace(problem, self._who.request_id)
            self.sse.write(b"data: " + dumps(streamed.error_body(error)) + b"\n\n" + DONE)
            return error
        finally:
            for task in delivering:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*delivering, return_exceptions=True)
        self.sse.write(streamed.finale() + DONE)
        return None

    def _headers(self, flight: Flight) -> dict[str, str]:
        origins = self._who.doors.settings.cors_origins
        route = route_headers(self._request, flight)
        return {"x-request-id": self._who.request_id, "server": SERVER, **route, **cors_headers(self._request, origins)}


def route_headers(request: web.Request, flight: Flight) -> dict[str, str]:
    """Where the request went and why, for clients that ask with `x-headrace-explain`."""
    if "x-headrace-explain" not in request.headers or flight.lease is None:
        return {}
    decision = flight.lease.decision
    return {"x-headrace-worker": flight.lease.worker.address, "x-headrace-route": decision.reason}
