"""All workers of this gateway: who there is, in what state, and who gets the next request.

Discovery and the admin API add and remove, health and the Sessions change states, the pipeline leases. Everything runs
on the event loop's thread; nothing here waits except `wait_for_change`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gateway.prefix.index import PrefixIndex
from gateway.resilience.circuit_breaker import BreakerSettings, BreakerState, CircuitBreaker
from gateway.routing.interface import Policy
from gateway.workers.address import normalise
from gateway.workers.group import ModelGroup
from gateway.workers.lease import CacheForecast, Lease, Outcome
from gateway.workers.request import LeaseRequest
from gateway.workers.state import derive
from gateway.workers.worker import LoadReport, Worker, WorkerInfo, WorkerState
from services.common.errors import Conflict, InvalidRequest, NotFound, Unavailable


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """panic_share: when a model has at least `panic_workers` ready workers and the breakers of more than this share of
    them are open, the fault is not theirs: open breakers are ignored then.

    failure_threshold: failed attempts to reach a worker before it counts as failed.
    approximate_blocks: bound of the approximate tree, per model. predicted_s: lifetime of predicted blocks.
    """

    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    panic_share: float = 0.5
    panic_workers: int = 3
    failure_threshold: int = 3
    approximate_blocks: int = 1 << 20
    predicted_s: float = 5.0


class Observer(Protocol):
    """Told of the fleet's changes, for instance to open and close Sessions. Must not raise."""

    def worker_added(self, worker: Worker) -> None: ...

    def worker_removed(self, worker: Worker) -> None: ...

    def worker_changed(self, worker: Worker, before: WorkerState) -> None: ...


class Registry:
    """`make_policy` is called once per model that appears; `clock` returns monotonic seconds."""

    def __init__(
        self,
        settings: RegistrySettings,
        make_policy: Callable[[str], Policy],
        clock: Callable[[], float],
        observers: Sequence[Observer] = (),
    ) -> None:
        self._settings = settings
        self._make_policy = make_policy
        self._clock = clock
        self._observers = list(observers)
        self._workers: dict[str, Worker] = {}
        self._groups: dict[str, ModelGroup] = {}
        self._changed = asyncio.Event()
        self.outcomes: Counter[tuple[str, Outcome]] = Counter()
        self.leased: Counter[str] = Counter()
        self.panics: Counter[str] = Counter()
        self.forecast = CacheForecast()

    # ------------------------------------------------------------------ the fleet

    def observe(self, observer: Observer) -> None:
        """Add an observer; it is told of the workers already there at once."""
        self._observers.append(observer)
        for worker in self.workers():
            observer.worker_added(worker)

    def add(self, address: str, *, source: str = "static") -> Worker:
        """A new worker, pending until it is reached. Raises Conflict if the address is known, InvalidRequest if unusable."""
        address = normalise(address)
        if address in self._workers:
            raise Conflict(f"worker {address} is already there", field="url")
        breaker = CircuitBreaker(self._settings.breaker, self._clock)
        worker = Worker(address, source=source, breaker=breaker)
        self._workers[worker.id] = worker
        for observer in self._observers:
            observer.worker_added(worker)
        self._wake()
        return worker

    def find(self, address: str) -> Worker:
        """By address in any spelling. Raises NotFound."""
        try:
            worker = self._workers.get(normalise(address))
        except InvalidRequest:
            worker = None
        if worker is None:
            raise NotFound(f"no worker {address!r}", code="worker_not_found")
        return worker

    def remove(self, address: str) -> Worker:
        """Takes the worker out at once; what runs there ends with its Session and goes on elsewhere. Raises NotFound."""
        worker = self.find(address)
        del self._workers[worker.id]
        del self.leased[worker.id]
        for outcome in Outcome:
            del self.outcomes[worker.id, outcome]
        for group in self._groups.values():
            group.index.forget(worker.id)
            group.policy.forget(worker.id)
        for observer in self._observers:
            observer.worker_removed(worker)
        self._wake()
        return worker

    def drain(self, address: str, reason: str = "drained by request") -> Worker:
        """No new requests for this worker; running ones go on. Raises NotFound."""
        worker = self.find(address)
        worker.signals.drained = reason
        self._derive(worker)
        return worker

    def undrain(self, address: str) -> Worker:
        """Takes `drain` back. Raises NotFound."""
        worker = self.find(address)
        worker.signals.drained = ""
        self._derive(worker)
        return worker

    def workers(self) -> list[Worker]:
        return list(self._workers.values())

    def models(self) -> list[str]:
        """Models that some worker serves or has served since it was added, in order of appearance."""
        return list(dict.fromkeys(w.model for w in self._workers.values() if w.model is not None))

    def ready(self, model: str | None = None) -> list[Worker]:
        return [w for w in self._workers.values() if w.is_ready and (model is None or w.model == model)]

    def slots(self, model: str) -> int:
        """Requests the model's ready workers can run at once, as far as they have told."""
        return sum(worker.load.max_running for worker in self.ready(model))

    def group(self, model: str) -> ModelGroup:
        """Policy and prefix index of a model, made on first use."""
        if model not in self._groups:
            settings = self._settings
            index = PrefixIndex(self._clock, approximate_blocks=settings.approximate_blocks, predicted_s=settings.predicted_s)
            self._groups[model] = ModelGroup(model, self._make_policy(model), index)
        return self._groups[model]

    def groups(self) -> list[ModelGroup]:
        return list(self._groups.values())

    # ------------------------------------------------------------------ states

    def set_info(self, worker: Worker, info: WorkerInfo) -> None:
        """The worker has told what it serves. A new boot has an empty cache and a clean record."""
        if worker.info is not None and (worker.info.boot_id, worker.info.identity) != (info.boot_id, info.identity):
            self._started_anew(worker, self.group(worker.info.identity.model), info)
        worker.info = info
        self.group(info.identity.model)
        self._wake()

    def _started_anew(self, worker: Worker, group: ModelGroup, info: WorkerInfo) -> None:
        worker.breaker.reset()
        if group.model == info.identity.model:
            group.index.rebooted(worker.id)
            return
        group.index.forget(worker.id)
        group.policy.forget(worker.id)

    def session_opened(self, worker: Worker, info: WorkerInfo) -> None:
        """A Session is open and the worker has told what it serves."""
        self.set_info(worker, info)
        worker.signals.opened()
        worker.forget_load()
        self._derive(worker)

    def session_lost(self, worker: Worker, reason: str, *, incompatible: bool = False) -> None:
        """The Session has ended, or an attempt to open one has failed; `incompatible`: it speaks another protocol."""
        worker.signals.lost(reason)
        worker.signals.incompatible = incompatible
        self._derive(worker)

    def session_leaving(self, worker: Worker) -> None:
        """The worker has said that it drains."""
        worker.signals.leaving = "the worker drains"
        self._derive(worker)

    def health_told(self, worker: Worker, serving: bool | None) -> None:
        """The health service has answered; None if it cannot tell."""
        worker.signals.serving = serving
        worker.signals.failures = 0
        self._derive(worker)

    def unreachable(self, worker: Worker, reason: str) -> None:
        """One more attempt to ask for health has failed."""
        worker.signals.serving = None
        worker.signals.failures += 1
        worker.signals.last_error = reason
        self._derive(worker)

    def _derive(self, worker: Worker) -> None:
        state, reason = derive(worker.signals, self._settings.failure_threshold)
        self._set_state(worker, state, reason)

    def _set_state(self, worker: Worker, state: WorkerState, reason: str) -> None:
        """Has no effect on a worker that has been removed."""
        if self._workers.get(worker.id) is not worker:
            return
        worker.state_reason = reason
        if state is worker.state:
            return
        before, worker.state = worker.state, state
        if state is WorkerState.FAILED and worker.model is not None:
            self.group(worker.model).index.forget(worker.id)
        for observer in self._observers:
            observer.worker_changed(worker, before)
        self._wake()

    def report_load(self, worker: Worker, report: LoadReport) -> None:
        worker.report_load(report)

    async def wait_for_change(self, timeout_s: float) -> bool:
        """Waits until a worker appears, leaves or changes, or a draining one is empty. False if nothing did in time."""
        event = self._changed
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return False
        return True

    def _wake(self) -> None:
        event, self._changed = self._changed, asyncio.Event()
        event.set()

    # ------------------------------------------------------------------ leases

    def lease(self, request: LeaseRequest) -> Lease:
        """A worker for one attempt.

        Raises NotFound for a model nobody serves, Unavailable while none of its workers can take the request.
        """
        ready = self._candidates(request)
        group = self.group(request.model)
        if request.worker_id is not None:
            choice = group.pinned(request, self._named(request, ready))
        else:
            allowed = self._allowed(request.model, ready)
            heard = [worker for worker in allowed if not worker.is_silent] or allowed
            untried = [worker for worker in heard if worker.id not in request.excluded]
            choice = group.choose(request, untried or heard)
        worker = choice.worker
        self.leased[worker.id] += 1
        return Lease(worker, choice.decision, choice.uncached_tokens, worker.breaker.acquire(), self.forecast, self._ended)

    def has_untried(self, request: LeaseRequest) -> bool:
        """Whether `lease` would find a worker that is not excluded."""
        return any(w.id not in request.excluded and w.breaker.allows() for w in self._fitting(request))

    def _fitting(self, request: LeaseRequest) -> list[Worker]:
        ready = self.ready(request.model)
        if request.identity is not None:
            ready = [w for w in ready if w.info is not None and w.info.identity == request.identity]
        return ready

    def _candidates(self, request: LeaseRequest) -> list[Worker]:
        ready = self._fitting(request)
        if ready:
            return ready
        workers = self._workers.values()
        if not any(w.model == request.model or w.model is None for w in workers) and any(w.model for w in workers):
            raise NotFound(f"model {request.model!r} is not served here", field="model", code="model_not_found")
        raise Unavailable(f"no worker is ready for model {request.model!r}", code="no_worker", retry_after_ms=1000)

    def _named(self, request: LeaseRequest, ready: list[Worker]) -> Worker:
        for worker in ready:
            if worker.id == request.worker_id:
                return worker
        raise Unavailable(f"worker {request.worker_id!r} is not ready", code="no_worker", safe_to_retry=False)

    def _allowed(self, model: str, ready: list[Worker]) -> list[Worker]:
        allowed = [worker for worker in ready if worker.breaker.allows()]
        if self._is_panic(ready):
            self.panics[model] += 1
            return [worker for worker in ready if worker in allowed or worker.breaker.state is BreakerState.OPEN]
        if not allowed:
            wait_s = min(worker.breaker.retry_after_s() for worker in ready)
            message = f"every worker of model {model!r} has failed too often and is being tried again carefully"
            raise Unavailable(message, code="circuit_open", retry_after_ms=max(1000, round(wait_s * 1000)))
        return allowed

    def panicking(self, model: str) -> bool:
        """Whether the model's open breakers are ignored at this moment."""
        return self._is_panic(self.ready(model))

    def _is_panic(self, ready: list[Worker]) -> bool:
        opened = sum(worker.breaker.state is BreakerState.OPEN for worker in ready)
        return len(ready) >= self._settings.panic_workers and opened > self._settings.panic_share * len(ready)

    def _ended(self, worker: Worker, outcome: Outcome) -> None:
        if self._workers.get(worker.id) is worker:
            self.outcomes[worker.id, outcome] += 1
        if worker.state is WorkerState.DRAINING and not worker.in_flight.requests:
            self._wake()
