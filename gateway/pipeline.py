"""The one path of every request: admit, encode, choose a worker, run, and go on elsewhere if that fails.

run ─► admission ─► prepare (tokenizer) ─► attempt ─► attempt … ─► all choices closed
                                             │ lease a worker, submit, await the turn's end
                                             └ interrupted: the unfinished choices go on from their output
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from gateway.clients.text_stage import TextPool
from gateway.clients.worker_pool import WorkerPool
from gateway.flight.flight import Flight, Interruption
from gateway.models import ModelCatalog
from gateway.prepare import Preparer
from gateway.resilience.admission import Admission
from gateway.resilience.resume import PrefillGate, ResumeLedger, ResumeSettings, ResumeTotals, loss_of
from gateway.resilience.retry import Attempts, RetryBudget, RetrySettings
from gateway.workers.lease import Lease
from gateway.workers.registry import Registry
from gateway.workers.request import LeaseRequest, PromptKey
from services.common.errors import Conflict, DeadlineExceeded, HeadraceError, Unavailable

log = logging.getLogger(__name__)

_HOLD_STEP_S = 1.0


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """hold_s: how long a request waits for a worker that was lost lately and may come back."""

    retry: RetrySettings = field(default_factory=RetrySettings)
    resume: ResumeSettings = field(default_factory=ResumeSettings)
    hold_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Stages:
    """What a request passes through."""

    registry: Registry
    models: ModelCatalog
    prepare: Preparer
    workers: WorkerPool
    text: TextPool
    admission: Admission
    budget: RetryBudget


class Pipeline:
    """Runs flights and knows those in the air by request id."""

    def __init__(self, stages: Stages, settings: PipelineSettings) -> None:
        self._stages = stages
        self._settings = settings
        self._active: dict[str, Flight] = {}
        self._prefills = PrefillGate(settings.resume.prefills_per_worker)
        self._idle = asyncio.Event()
        self._idle.set()
        self.totals = ResumeTotals()

    @property
    def active(self) -> int:
        """Requests in the air."""
        return len(self._active)

    def active_by_model(self) -> Counter[str]:
        """Requests in the air, by model."""
        return Counter(flight.spec.model for flight in self._active.values())

    def is_active(self, request_id: str) -> bool:
        """Is the id taken?"""
        return request_id in self._active

    async def wait_idle(self) -> None:
        """Return when no request is in the air."""
        await self._idle.wait()

    def abort(self, request_id: str) -> bool:
        """End a request as aborted, wherever it is. False if it is not known here."""
        flight = self._active.get(request_id)
        if flight is None:
            return False
        flight.abort_requested = True
        lease = flight.lease
        if lease is not None and lease.outcome is None:
            self._stages.workers.session(lease.worker).cancel(flight, "ABORT_REQUEST")
        elif flight.task is not None:
            flight.task.cancel()
        return True

    def abort_all(self) -> int:
        """Abort every request; returns how many."""
        return sum(self.abort(request_id) for request_id in list(self._active))

    async def run(self, flight: Flight) -> None:
        """Return when all choices of the request are closed. Raises the one error it ends with.

        Cancelling the caller ends the request in the worker at once.
        """
        self._enter(flight)
        try:
            await self._run(flight)
        except asyncio.CancelledError:
            if not flight.abort_requested or flight.task is None or flight.task.uncancel():
                raise
            flight.abort_locally()
        except HeadraceError as error:
            flight.error = error
            raise
        finally:
            self._leave(flight)

    def _enter(self, flight: Flight) -> None:
        request_id = flight.spec.request_id
        if request_id in self._active:
            raise Conflict(f"request id {request_id!r} is in use", field="rid")
        self._active[request_id] = flight
        self._idle.clear()
        flight.task = asyncio.current_task()

    def _leave(self, flight: Flight) -> None:
        del self._active[flight.spec.request_id]
        if not self._active:
            self._idle.set()
        for choice in flight.choices:
            if not choice.closed:
                self._stages.text.drop(choice)
        self._stages.text.flush()
        if not flight.accepted.done():
            flight.accepted.set_result(None)

    async def _run(self, flight: Flight) -> None:
        spec = flight.spec
        model = self._stages.models.resolve(spec.model)
        remaining = flight.remaining_s()
        deadline = None if remaining is None else time.monotonic() + remaining
        try:
            async with asyncio.timeout(remaining):
                admit = self._stages.admission.admit(model, tenant=spec.tenant, priority=spec.priority or 0, deadline=deadline)
                async with admit as ticket:
                    admitted = time.monotonic()
                    await self._stages.prepare.prepare(flight)
                    flight.stages["admission"] = admitted - flight.created
                    flight.stages["tokenize"] = time.monotonic() - admitted
                    await self._attempts(flight, deadline)
                    ticket.produced(sum(len(choice.output_ids) for choice in flight.choices))
        except TimeoutError as error:
            flight.cancel_cause = "DEADLINE"
            raise DeadlineExceeded(f"the request did not end within {spec.timeout_s:g} s") from error

    async def _attempts(self, flight: Flight, deadline: float | None) -> None:
        spec, registry = flight.spec, self._stages.registry
        prompt = PromptKey(flight.prompt_ids, cache_salt=spec.cache_salt.encode(), extra_key=spec.extra_key)
        wanted = LeaseRequest(
            model=self._stages.models.resolve(spec.model),
            prompt=prompt,
            max_new_tokens=flight.max_new_tokens,
            routing_key=spec.routing_key,
            tenant=spec.tenant,
            priority=spec.priority or 0,
        )
        ledger = ResumeLedger(self._settings.resume, self.totals, request_id=spec.request_id, arrived=flight.created)
        attempts = Attempts(
            self._settings.retry,
            self._stages.budget,
            clock=time.monotonic,
            deadline=deadline,
            has_untried=lambda tried: registry.has_untried(self._request(flight, wanted).excluding(tried)),
        )
        try:
            async for attempt in attempts.run():
                with attempt:
                    await self._try(flight, self._request(flight, wanted).excluding(attempts.tried), ledger, attempts)
        except HeadraceError:
            ledger.failed()
            raise

    async def _try(self, flight: Flight, request: LeaseRequest, ledger: ResumeLedger, attempts: Attempts) -> None:
        """One attempt on a worker of the registry's choice."""
        asked = time.monotonic()
        with await self._lease(request) as lease:
            flight.stages.setdefault("route", time.monotonic() - asked)
            attempts.trying(lease.worker.id)
            try:
                await self._attempt(flight, lease, ledger)
            except HeadraceError as error:
                self._lost(flight, lease, ledger, attempts, error)
                raise

    def _request(self, flight: Flight, wanted: LeaseRequest) -> LeaseRequest:
        """What is asked of the registry now: output that has arrived binds the request to its model's identity."""
        if not flight.begun:
            return wanted
        return LeaseRequest(
            model=wanted.model,
            prompt=wanted.prompt.extended(flight.choices[0].output_ids),
            max_new_tokens=wanted.max_new_tokens,
            routing_key=wanted.routing_key,
            tenant=wanted.tenant,
            priority=wanted.priority,
            identity=flight.identity,
        )

    async def _lease(self, request: LeaseRequest) -> Lease:
        until = time.monotonic() + self._settings.hold_s
        while True:
            try:
                return self._stages.registry.lease(request)
            except Unavailable as error:
                left = until - time.monotonic()
                if error.code != "no_worker" or left <= 0 or not self._stages.workers.lost_within(self._settings.hold_s):
                    raise
                await self._stages.registry.wait_for_change(min(left, _HOLD_STEP_S))

    async def _attempt(self, flight: Flight, lease: Lease, ledger: ResumeLedger) -> None:
        session = self._stages.workers.session(lease.worker)
        async with AsyncExitStack() as stack:
            if ledger.resumes:
                slot = self._prefills.slot(lease.worker.id, ledger.arrived)
                flight.on_first_token = await stack.enter_async_context(slot)
            turn = flight.next_turn()
            flight.stop_choice = session.end_choice
            session.submit(flight)
            ledger.placed()
            flight.submitted_at = flight.submitted_at or time.monotonic()
            flight.lease = lease
            if flight.identity is None or not flight.begun:
                flight.identity = session.identity
            try:
                why = await turn
            except asyncio.CancelledError:
                session.drop(flight, _cause(flight))
                raise
            if why is not None:
                session.drop(flight, "SUPERSEDED")
                raise _error_of(why)

    def _lost(self, flight: Flight, lease: Lease, ledger: ResumeLedger, attempts: Attempts, error: HeadraceError) -> None:
        """Count what an attempt's end means. Returns if the request may be tried again."""
        if not (error.safe_to_retry or error.safe_to_resume):
            return
        if flight.begun and not error.safe_to_resume:
            error.safe_to_retry = False
            return
        ledger.lost(loss_of(error), lease.worker.id, running=flight.may_have_run, has_output=flight.begun)
        if flight.begun:
            attempts.resume()
            flight.resumes = ledger.resumes
        log.warning(
            "request goes on elsewhere" if flight.begun else "request is tried again",
            extra={"request_id": flight.spec.request_id, "worker": lease.worker.address, "reason": error.message},
        )


def _cause(flight: Flight) -> str:
    """Why a running request is cancelled: its own clock, or whoever has set the cause."""
    remaining = flight.remaining_s()
    return "DEADLINE" if remaining is not None and remaining <= 0 else flight.cancel_cause


def _error_of(why: Interruption) -> HeadraceError:
    """The error an interrupted attempt ends with."""
    if why.error is not None:
        return why.error
    return Unavailable(why.message, code=why.code)
