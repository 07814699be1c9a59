"""The right to run one attempt on one worker, and the duty to say how it went.

    with registry.lease(request) as lease:
        ...submit to lease.worker...
        lease.started(cached_tokens)      # the worker began to compute the prompt
        lease.first_token()               # the prompt is computed

Leaving the block settles it: a clean exit is a success, an exception is classified by `outcome_of`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType

from gateway.resilience.circuit_breaker import Permit, Verdict
from gateway.routing.interface import Decision
from gateway.workers.worker import Worker
from services.common.errors import Cancelled, DeadlineExceeded, HeadraceError, Internal, Overloaded, Unavailable


class Outcome(StrEnum):
    SUCCESS = "success"
    OVERLOADED = "overloaded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    DRAINED = "drained"


_VERDICTS: dict[Outcome, Verdict] = {Outcome.SUCCESS: "success", Outcome.FAILED: "failure"}


def outcome_of(error: BaseException | None) -> Outcome:
    """What an attempt's end says about its worker. Only `FAILED` counts against it."""
    if error is None:
        return Outcome.SUCCESS
    if isinstance(error, asyncio.CancelledError | GeneratorExit | Cancelled | DeadlineExceeded):
        return Outcome.CANCELLED
    if isinstance(error, Overloaded):
        return Outcome.OVERLOADED
    if isinstance(error, Unavailable):
        return Outcome.DRAINED if error.code == "draining" else Outcome.FAILED
    if isinstance(error, HeadraceError) and not isinstance(error, Internal):
        return Outcome.REJECTED
    return Outcome.FAILED


@dataclass(slots=True)
class CacheForecast:
    """Prompt tokens that routing expected in the chosen workers' caches and that they found there, same requests."""

    predicted_tokens: int = 0
    found_tokens: int = 0


class Lease:
    """Made by the registry. Counts its request and prompt tokens on the worker until they are done."""

    def __init__(
        self,
        worker: Worker,
        decision: Decision,
        uncached_tokens: int,
        permit: Permit,
        forecast: CacheForecast,
        on_end: Callable[[Worker, Outcome], None],
    ) -> None:
        self.worker = worker
        self.decision = decision
        self.outcome: Outcome | None = None
        self._permit = permit
        self._forecast: CacheForecast | None = forecast
        self._on_end = on_end
        self._prefill = uncached_tokens
        self._begun = False
        worker.in_flight.requests += 1
        worker.in_flight.prefill_tokens += uncached_tokens

    def started(self, prompt_tokens: int, cached_tokens: int) -> None:
        """The worker found `cached_tokens` of the prompt: what it has left to compute replaces the prediction.

        Choices that start later share the prompt of the first and change nothing.
        """
        if not self._begun and self.outcome is None:
            self._count_prefill(max(0, prompt_tokens - cached_tokens))
            self._begun = True
            self.worker.in_flight.started_tokens += self._prefill
        if self._forecast is not None:
            self._forecast.predicted_tokens += self.decision.predicted_tokens
            self._forecast.found_tokens += cached_tokens
            self.worker.recent_hits.add(prompt_tokens, cached_tokens)
            self._forecast = None

    def first_token(self) -> None:
        """The prompt is computed. A trial call of the breaker has done its work here, however long the stream runs."""
        self._count_prefill(0)
        if self._permit.trial:
            self._permit.settle("success")

    def settle(self, outcome: Outcome) -> None:
        """Ends the lease; only the first call counts."""
        if self.outcome is not None:
            return
        self.outcome = outcome
        self._count_prefill(0)
        self.worker.in_flight.requests -= 1
        if self._permit.settled and outcome is Outcome.FAILED:
            self.worker.breaker.acquire().settle("failure")
        self._permit.settle(_VERDICTS.get(outcome, "neutral"))
        self._on_end(self.worker, outcome)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.settle(outcome_of(error))

    def _count_prefill(self, tokens: int) -> None:
        self.worker.in_flight.prefill_tokens += tokens - self._prefill
        if self._begun:
            self.worker.in_flight.started_tokens += tokens - self._prefill
        self._prefill = tokens
