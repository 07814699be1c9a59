"""How often, and how many at a time, requests may go on elsewhere after their worker was lost."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum

from services.common.errors import HeadraceError, Internal, Unavailable


class Loss(StrEnum):
    """How an attempt was lost. `DIED` and `STALLED` may be the request's own doing, the others kill nobody.

    STALLED is a worker that turns no more, STUCK one stream that stands still while others move.
    """

    DIED = "died"
    STALLED = "stalled"
    STUCK = "stuck"
    DRAINED = "drained"
    DETOKENIZER = "detokenizer"
    REFUSED = "refused"


log = logging.getLogger(__name__)

_SUSPICIOUS = frozenset({Loss.DIED, Loss.STALLED})


@dataclass(frozen=True, slots=True)
class ResumeSettings:
    """max_resumes: times one request may go on elsewhere.

    max_deaths: a request that was running in so many workers when they died is ended. One that waited there counts half:
    the worker may have begun it in its last moment.
    prefills_per_worker: requests that may recompute their prompt on one worker at a time after a loss.
    """

    max_resumes: int = 3
    max_deaths: int = 2
    prefills_per_worker: int = 4


@dataclass(slots=True)
class ResumeTotals:
    """Counted over all requests of this process: moved in mid-answer, cut for want of a worker or of patience, suspected of killing."""

    resumes: int = 0
    given_up: int = 0
    suspects: int = 0


class ResumeLedger:
    """One request's losses. `arrived` is its arrival time, which it keeps."""

    def __init__(self, settings: ResumeSettings, totals: ResumeTotals, *, request_id: str, arrived: float) -> None:
        self._settings = settings
        self._totals = totals
        self._request_id = request_id
        self.arrived = arrived
        self.resumes = 0
        self.deaths: list[str] = []
        self._suspicion = 0.0
        self._homeless = False

    def lost(self, loss: Loss, worker_id: str, *, running: bool, has_output: bool) -> None:
        """The attempt on `worker_id` is lost. Returns if the request may go on, else raises what the client is told.

        `running` is False only if the worker has said that the request still waits: until then it may well be what
        killed it. `has_output` tells a resume, which is counted, from a retry of a request that has produced nothing.
        """
        if loss in _SUSPICIOUS:
            self.deaths.append(worker_id)
            self._suspicion += 1.0 if running else 0.5
            if self._suspicion >= self._settings.max_deaths:
                self._totals.suspects += 1
                message = f"request {self._request_id} was in {len(self.deaths)} workers when they died; it is not passed on"
                log.error("request killed workers", extra={"request_id": self._request_id, "workers": ",".join(self.deaths)})
                raise Internal(message, code="killed_workers")
        if not has_output or loss is Loss.REFUSED:
            return
        self.resumes += 1
        self._homeless = True
        if self.resumes > self._settings.max_resumes:
            raise Unavailable(
                f"request {self._request_id} was interrupted {self.resumes} times",
                code="too_many_resumes",
                safe_to_retry=False,
                safe_to_resume=False,
            )

    def placed(self) -> None:
        """A worker has the request again."""
        if self._homeless:
            self._homeless = False
            self._totals.resumes += 1

    def failed(self) -> None:
        """The request has ended with an error: in mid-answer and without a worker, the resume has failed."""
        if self._homeless:
            self._homeless = False
            self._totals.given_up += 1


def loss_of(error: HeadraceError) -> Loss:
    """The kind of loss behind an attempt's error."""
    if error.code in ("draining", "interrupted"):
        return Loss.DRAINED
    if error.code == "stalled":
        return Loss.STALLED
    if error.code == "stuck":
        return Loss.STUCK
    if error.code == "detokenizer":
        return Loss.DETOKENIZER
    return Loss.DIED if error.code == "connection_lost" else Loss.REFUSED


class PrefillGate:
    """Lets `limit` requests at a time recompute their prompts on one worker; earlier arrivals go first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._running: dict[str, int] = {}
        self._waiting: dict[str, list[tuple[float, int, asyncio.Future[None]]]] = {}
        self._tickets = 0

    def in_use(self, worker_id: str) -> int:
        return self._running.get(worker_id, 0)

    @asynccontextmanager
    async def slot(self, worker_id: str, arrived: float) -> AsyncIterator[Callable[[], None]]:
        """Waits for a slot and yields the function that gives it back, which leaving the block does at the latest."""
        await self._take(worker_id, arrived)
        held = True

        def release() -> None:
            nonlocal held
            if held:
                held = False
                self._give(worker_id)

        try:
            yield release
        finally:
            release()

    async def _take(self, worker_id: str, arrived: float) -> None:
        if self._running.get(worker_id, 0) < self._limit:
            self._running[worker_id] = self._running.get(worker_id, 0) + 1
            return
        self._tickets += 1
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting.setdefault(worker_id, []), (arrived, self._tickets, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give(worker_id)
            raise

    def _give(self, worker_id: str) -> None:
        waiting = self._waiting.get(worker_id, [])
        while waiting:
            _, _, turn = heapq.heappop(waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._waiting.pop(worker_id, None)
        self._running[worker_id] -= 1
        if not self._running[worker_id]:
            del self._running[worker_id]
