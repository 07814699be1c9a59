"""Who may enter: bounded concurrency and a bounded queue per model, fair between tenants, in order of priority.

A request that cannot be served in time is told so at once (429 with Retry-After), before anything is spent on it.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gateway.resilience.fair_queue import FairQueue, Waiting
from gateway.resilience.limit import AdaptiveLimit, FixedLimit, Limit
from gateway.resilience.rate import TokenBucket
from services.common.errors import Overloaded

UNLIMITED = 1 << 30  # what a gate without a limit says its limit is
_RESIZE_S = 1.0  # between two looks at how many requests the fleet can run
_QUEUE_LEAST, _QUEUE_OF_LIMIT = 1024, 4  # a queue without a size of its own: so many, or so many times the limit


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """max_concurrent: a number, or -1 for no limit, or None for one that adapts. queue_timeout_s: the longest wait.

    queue_size: per model; None lets so many wait that a burst of any newcomer's load test fits: 1024, and for a large fleet
    four times the limit. Overload is then told by the predicted wait, not by a count.
    rate: requests let in per second, 0 for no such limit; burst: how many at once after a pause, 0 for those of one second.
    processes: gateway processes that share the limits.
    """

    max_concurrent: int | None = None
    queue_size: int | None = None
    queue_timeout_s: float = 60.0
    rate: float = 0.0
    burst: float = 0.0
    processes: int = 1


class Ticket:
    """Admission of one request; held until the request ends, through all its attempts."""

    def __init__(self, admitted_at: float, waited_s: float) -> None:
        self.admitted_at = admitted_at
        self.waited_s = waited_s
        self.tokens = 0

    def produced(self, tokens: int) -> None:
        """Tokens of work done for the request, prompt tokens at their cost relative to output tokens."""
        self.tokens += tokens


class _Gate:
    """One model's admission."""

    def __init__(self, settings: AdmissionSettings, limit: Limit, bucket: TokenBucket | None) -> None:
        self.settings = settings
        self.limit = limit
        self.bucket = bucket
        self._refill: asyncio.TimerHandle | None = None
        self.running = 0
        self.queue = FairQueue()
        self.shed: Counter[str] = Counter()
        self.service_s = 0.0
        self.sized_at = -math.inf

    @property
    def queue_size(self) -> int:
        size = self.settings.queue_size
        if size is None:
            return max(_QUEUE_LEAST // self.settings.processes, _QUEUE_OF_LIMIT * self.limit.value)
        return max(1, size // self.settings.processes) if size else 0

    @property
    def is_full(self) -> bool:
        return self.running >= self.limit.value

    @property
    def too_fast(self) -> bool:
        """Whether requests wait for the bucket alone."""
        return self.bucket is not None and not self.is_full and self.bucket.wait_s() > 0

    def expected_wait_s(self, ahead: int) -> float:
        """Time until a request with `ahead` others before it is let in, from how long requests take at present and from the rate."""
        by_rate = self.bucket.wait_s(ahead) if self.bucket is not None else 0.0
        return max(by_rate, self.service_s * (ahead + 1) / max(1, self.limit.value) if self.is_full else 0.0)

    def refuse(self, limit: str, why: str) -> Overloaded:
        code = "queue_full"
        if self.bucket is not None and self.too_fast:
            limit, code, why = "rate", "rate_limit_exceeded", f"more than {self.bucket.rate:g} requests a second: {why}"
        self.shed[limit] += 1
        wait_s = max(1.0, self.expected_wait_s(len(self.queue)))
        return Overloaded(why, retry_after_ms=round(1000 * min(wait_s, 60.0)), safe_to_retry=False, code=code)

    def admit_waiting(self) -> None:
        while self.queue and not self.is_full:
            if self.bucket is not None and (wait_s := self.bucket.wait_s()) > 0:
                self._await_refill(wait_s)
                return
            waiting = self.queue.pop()
            if not waiting.turn.done():
                self.enter(waiting.tenant)
                waiting.turn.set_result(None)

    def _await_refill(self, seconds: float) -> None:
        """Nobody's leaving lets the next one in, but time does."""
        if self._refill is None:
            self._refill = asyncio.get_running_loop().call_later(seconds, self._refilled)

    def _refilled(self) -> None:
        self._refill = None
        self.admit_waiting()

    def enter(self, tenant: str) -> None:
        if self.bucket is not None:
            self.bucket.take()
        self.running += 1
        self.queue.entered(tenant)

    def leave(self, tenant: str) -> None:
        self.running -= 1
        self.queue.left(tenant)
        self.admit_waiting()


class Admission:
    """`clock` returns monotonic seconds. Models are told apart by name; each has limits of its own.

    `slots`: model → requests its workers can run at once, 0 if that is not known.
    """

    def __init__(self, settings: AdmissionSettings, clock: Callable[[], float], slots: Callable[[str], int] = lambda model: 0) -> None:
        self._settings = settings
        self._clock = clock
        self._slots = slots
        self._gates: dict[str, _Gate] = {}

    def _gate(self, model: str) -> _Gate:
        if model not in self._gates:
            wanted, share = self._settings.max_concurrent, self._settings.processes
            fixed = UNLIMITED if wanted is None or wanted < 0 else max(1, wanted // share)
            limit: Limit = AdaptiveLimit() if wanted is None else FixedLimit(fixed)
            self._gates[model] = _Gate(self._settings, limit, self._bucket())
        gate, now = self._gates[model], self._clock()
        if now >= gate.sized_at + _RESIZE_S:
            gate.sized_at = now
            gate.limit.resize(self._slots(model) // self._settings.processes)
            gate.admit_waiting()
        return gate

    def _bucket(self) -> TokenBucket | None:
        rate = self._settings.rate / self._settings.processes
        return TokenBucket(rate, self._settings.burst / self._settings.processes or rate, self._clock) if rate else None

    @asynccontextmanager
    async def admit(self, model: str, *, tenant: str = "", priority: int = 0, deadline: float | None = None) -> AsyncIterator[Ticket]:
        """Waits for its turn. Raises Overloaded if the queue is full, or the wait is or would be too long.

        Higher `priority` goes first; tenants of one priority take turns. `deadline` is a time of the clock.
        """
        gate, arrived = self._gate(model), self._clock()
        await self._enter(gate, tenant, priority, deadline)
        ticket = Ticket(self._clock(), self._clock() - arrived)
        try:
            yield ticket
        finally:
            took = self._clock() - ticket.admitted_at
            gate.service_s = took if gate.service_s == 0.0 else 0.9 * gate.service_s + 0.1 * took
            gate.limit.observe(took, ticket.tokens, gate.running, bool(gate.queue) and gate.is_full)
            gate.leave(tenant)

    async def _enter(self, gate: _Gate, tenant: str, priority: int, deadline: float | None) -> None:
        if not gate.is_full and not gate.queue and not gate.too_fast:
            gate.enter(tenant)
            return
        patience_s = self._settings.queue_timeout_s
        if deadline is not None:
            patience_s = min(patience_s, deadline - self._clock())
        if gate.expected_wait_s(gate.queue.ahead_of(priority)) > patience_s:
            raise gate.refuse("deadline", "the request could not start before its deadline")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = Waiting(turn, tenant, priority)
        if len(gate.queue) >= gate.queue_size:
            sent_away = gate.queue.makes_way_for(waiting)
            if sent_away is None:
                raise gate.refuse("queue_size", f"{len(gate.queue)} requests are waiting already")
            gate.queue.remove(sent_away)
            sent_away.turn.set_exception(
                gate.refuse("queue_size", "gave way to a request of higher priority, or of a client with fewer requests")
            )
        gate.queue.push(waiting)
        gate.admit_waiting()
        try:
            async with asyncio.timeout(patience_s):
                await turn
        except TimeoutError:
            self._abandon(gate, waiting)
            raise gate.refuse("queue_timeout", f"no turn within {patience_s:.1f} s") from None
        except asyncio.CancelledError:
            self._abandon(gate, waiting)
            raise

    def _abandon(self, gate: _Gate, waiting: Waiting) -> None:
        turn = waiting.turn
        if turn.done() and not turn.cancelled() and turn.exception() is None:
            gate.leave(waiting.tenant)
        else:
            gate.queue.remove(waiting)

    def shed(self) -> Counter[str]:
        """Refusals by the limit that was hit: rate, queue_size, queue_timeout, deadline."""
        return sum((gate.shed for gate in self._gates.values()), Counter())

    def snapshot(self) -> dict[str, dict[str, float]]:
        """Model → running, waiting, limit, shed."""
        return {
            model: {"running": g.running, "waiting": len(g.queue), "limit": g.limit.value, "shed": g.shed.total()}
            for model, g in self._gates.items()
        }
