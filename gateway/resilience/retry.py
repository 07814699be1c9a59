"""Whether, where and when a failed attempt is made again.

    attempts = Attempts(settings, budget, deadline=…, clock=…, has_untried=lambda tried: registry.has_untried(…))
    async for attempt in attempts.run():
        with attempt, registry.lease(request.excluding(attempts.tried)) as lease:
            attempts.trying(lease.worker.id)
            ...

An error leaves the loop unless the attempt may be repeated. Workers that were not tried come first, at once; only where
none is left does the next attempt wait, longer each time and by a random part of that.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType

from tenacity import AsyncRetrying, RetryCallState

from services.common.errors import DeadlineExceeded, HeadraceError, Overloaded, Unavailable


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """max_attempts counts the first one: 1 turns retries off. Waits are drawn from [0, initial * factor ** n], capped.

    settle_s: pause after a worker was lost. What killed it may have killed others, and a request handed to a worker that is
    dead but not yet known to be would count as running in it.
    """

    max_attempts: int = 5
    initial_s: float = 0.05
    factor: float = 1.5
    cap_s: float = 30.0
    settle_s: float = 0.2
    resume_pause_s: float = 0.5
    resume_patience_s: float = 60.0


class RetryBudget:
    """Retries that all requests share, so that a fleet in trouble is not asked several times as much.

    Each new request earns `share` of a retry, up to `reserve`, with which the budget starts; left alone it fills up
    within `refill_s`. `rng` spreads the waits of retries.
    """

    def __init__(
        self,
        *,
        share: float = 0.2,
        reserve: float = 100.0,
        refill_s: float = 100.0,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rng = rng or random.Random()
        self._share = share
        self._reserve = reserve
        self._per_second = reserve / refill_s
        self._clock = clock
        self._kept = reserve
        self._kept_at = clock()
        self.exhausted = 0
        self.retries: Counter[str] = Counter()

    @property
    def remaining_share(self) -> float:
        """1 when nothing was spent lately, 0 when no retry is left."""
        return self._left() / self._reserve if self._reserve else 0.0

    def _left(self) -> float:
        return min(self._reserve, self._kept + (self._clock() - self._kept_at) * self._per_second)

    def _keep(self, left: float) -> None:
        self._kept, self._kept_at = min(self._reserve, left), self._clock()

    def earn(self) -> None:
        self._keep(self._left() + self._share)

    def spend(self, why: str) -> bool:
        """Takes one retry because of `why`; False, and counted, if none is left."""
        left = self._left()
        if left < 1.0:
            self.exhausted += 1
            return False
        self._keep(left - 1.0)
        self.retries[why] += 1
        return True


class Attempts:
    """The attempts of one request. `deadline` is a time of `clock`, or None."""

    def __init__(
        self,
        settings: RetrySettings,
        budget: RetryBudget,
        *,
        clock: Callable[[], float],
        deadline: float | None = None,
        has_untried: Callable[[frozenset[str]], bool] = lambda tried: False,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._settings = settings
        self._budget = budget
        self._clock = clock
        self._deadline = deadline
        self._has_untried = has_untried
        self._sleep = sleep
        self._waits = 0
        self._wait_s = 0.0
        self._made = 0
        self.tried: frozenset[str] = frozenset()
        self.resuming = False
        self._resumed_at = 0.0
        budget.earn()

    @property
    def retries(self) -> int:
        """Attempts beyond the first."""
        return max(0, self._made - 1)

    def trying(self, worker_id: str) -> None:
        """This attempt runs on the worker."""
        self.tried |= {worker_id}

    def resume(self) -> None:
        """What follows goes on from work already done: the resume rules limit it, not the number of attempts or the budget.

        Such a request is never shed: refusals are waited out for `resume_patience_s` from the last call of this method.
        """
        self.resuming = True
        self._resumed_at = self._clock()

    def run(self) -> Tries:
        """Iterate with `async for`: one context manager per attempt. Raises the last error when there may be no more."""
        return Tries(self)

    def first(self) -> None:
        """The first attempt begins."""
        self._made = 1

    async def rest(self) -> AsyncRetrying:
        """Those after the first, once it is time for them."""
        await self._sleep(self._wait_s)
        return AsyncRetrying(
            stop=lambda state: False,
            retry=self._again,
            wait=lambda state: self._wait_s,
            before=self._begin,
            sleep=self._sleep,
            reraise=True,
        )

    def _begin(self, state: RetryCallState) -> None:
        self._made = 1 + state.attempt_number

    def _again(self, state: RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome is not None else None
        return error is not None and self.allows(error)

    def allows(self, error: BaseException) -> bool:
        """May the request be tried again after this error? If so the wait before that is settled too."""
        if not isinstance(error, HeadraceError) or not (error.safe_to_resume or error.safe_to_retry):
            return False
        if not self.resuming and (self._made >= self._settings.max_attempts or (error.code == "no_worker" and not self.tried)):
            return False
        self._wait_s = max(self._pause(error), self._settings.settle_s if error.code == "connection_lost" else 0.0)
        resumes_at = self._clock() + self._wait_s
        if self.resuming and resumes_at >= self._resumed_at + self._settings.resume_patience_s:
            return False
        if self._deadline is not None and resumes_at >= self._deadline:
            return False
        return self.resuming or self._budget.spend(_kind(error))

    def _pause(self, error: HeadraceError) -> float:
        if error.code != "no_worker" and self._has_untried(self.tried):
            return 0.0
        return self._budget.rng.uniform(0.0, self._settings.resume_pause_s) if self.resuming else self._backoff(error)

    def _backoff(self, error: HeadraceError) -> float:
        longest = min(self._settings.cap_s, self._settings.initial_s * self._settings.factor**self._waits)
        self._waits += 1
        wait_s = self._budget.rng.uniform(0.0, longest)
        if isinstance(error, Overloaded) and error.retry_after_ms is not None:
            wait_s += min(longest, error.retry_after_ms / 1000)
        return wait_s


class Tries:
    """The first attempt, and if that fails in a way that allows it, tenacity's. Most requests need one, and asking costs more."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self._begun = self._go_on = False
        self._rest: AsyncRetrying | None = None

    def __aiter__(self) -> Tries:
        return self

    async def __anext__(self) -> AbstractContextManager[object]:
        if not self._begun:
            self._begun = True
            self._attempts.first()
            return self
        if not self._go_on:
            raise StopAsyncIteration
        if self._rest is None:
            self._rest = aiter(await self._attempts.rest())
        return await anext(self._rest)

    def __enter__(self) -> Tries:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        self._go_on = error is not None and self._attempts.allows(error)
        return self._go_on


def _kind(error: HeadraceError) -> str:
    """What failed, in a word."""
    if isinstance(error, Overloaded):
        return "overloaded"
    if isinstance(error, DeadlineExceeded):
        return "timeout"
    if isinstance(error, Unavailable):
        return "connect" if error.code in ("connection_lost", "not_connected") else "unavailable"
    return "other"
