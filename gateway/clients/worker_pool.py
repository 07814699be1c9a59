"""A Session to every worker of the registry, opened and closed as workers come and go."""

from __future__ import annotations

import asyncio
import time

from gateway.clients.scheduler import TextStage, WorkerSession
from gateway.flight.flight import Interruption
from gateway.resilience.stuck import Running, stuck
from gateway.workers.registry import Registry
from gateway.workers.worker import Worker, WorkerState
from services.common.errors import Unavailable
from services.common.metrics import Metrics
from services.common.server_config import ServerConfig

_PULSE_S = 1.0
_SUSPICIOUS_S = 3.0  # of silence, after which a worker gets nothing new while others speak
_DEAF_S = 0.25  # longer than the event loop is ever late by itself


class WorkerPool:
    """Observer of the registry; tells it what the Sessions learn."""

    def __init__(
        self,
        registry: Registry,
        text: TextStage,
        *,
        client_id: str,
        trust: ServerConfig | None,
        silence_limit_s: float,
        metrics: Metrics | None = None,
    ) -> None:
        self._registry = registry
        self._metrics = metrics
        self._text = text
        self._client_id = client_id
        self._trust = trust
        self._silence_limit_s = silence_limit_s
        self._sessions: dict[str, WorkerSession] = {}
        self._workers: dict[WorkerSession, Worker] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._pulse: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Follow the registry from now on."""
        self._registry.observe(self)
        self._pulse = asyncio.create_task(self._watch(), name="worker pulse")

    async def close(self) -> None:
        """End all Sessions."""
        if self._pulse is not None:
            self._pulse.cancel()
        for session in self._sessions.values():
            await session.close()
        await asyncio.gather(*self._closing, return_exceptions=True)

    def session(self, worker: Worker) -> WorkerSession:
        """The worker's Session. Raises Unavailable for a worker that has just left."""
        found = self._sessions.get(worker.id)
        if found is None:
            raise Unavailable(f"worker {worker.address} has left", code="not_connected")
        return found

    def sessions(self) -> list[WorkerSession]:
        """All of them."""
        return list(self._sessions.values())

    def lost_within(self, seconds: float) -> bool:
        """Has a Session been lost so lately that its worker may be starting again?"""
        now = time.monotonic()
        return any(s.lost_at is not None and now - s.lost_at < seconds for s in self._sessions.values())

    def worker_added(self, worker: Worker) -> None:
        """Open a Session."""
        session = WorkerSession(worker.address, self._text, client_id=self._client_id, trust=self._trust, on_change=self._session_changed)
        self._sessions[worker.id] = session
        self._workers[session] = worker
        session.start()

    def worker_removed(self, worker: Worker) -> None:
        """Close its Session."""
        session = self._sessions.pop(worker.id)
        del self._workers[session]
        task = asyncio.create_task(session.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def worker_changed(self, worker: Worker, before: WorkerState) -> None:
        """Nothing to do: streams go on in every state."""

    def _session_changed(self, session: WorkerSession) -> None:
        worker = self._workers.get(session)
        if worker is None:
            return
        if not session.connected:
            self._registry.session_lost(worker, session.last_error, incompatible=session.incompatible)
            return
        if self._metrics is not None and session.gaps is None:
            model = session.info.identity.model
            session.gaps = self._metrics.histogram("headrace_inter_token_latency_seconds", model_name=model)
            session.tokens = self._metrics.counter("headrace_generation_tokens_total", model_name=model)
        if not worker.signals.session or worker.info != session.info:
            self._registry.session_opened(worker, session.info)
        if session.draining and not worker.signals.leaving:
            self._registry.session_leaving(worker)
        if session.load is not None:
            self._registry.report_load(worker, session.load)

    async def _watch(self) -> None:
        """Look for workers that have fallen silent. While this process itself stood still it has not listened: that is no silence."""
        heard_from = time.monotonic()
        while True:
            asleep = time.monotonic()
            await asyncio.sleep(_PULSE_S)
            now = time.monotonic()
            was_deaf = now - asleep - _PULSE_S > _DEAF_S
            if was_deaf:
                heard_from = now
            for session in self.sessions():
                if was_deaf:
                    session.last_frame_at = now
                session.check_pulse(self._silence_limit_s)
                self._workers[session].is_silent = session.silent_s() > _SUSPICIOUS_S
            self._free_stuck(now, heard_from)

    def _free_stuck(self, now: float, heard_from: float) -> None:
        """Streams that get nothing while others do go on elsewhere."""
        running = [Running(s.choices, s.load is not None and s.load.waiting > 0) for s in self.sessions() if s.in_flight]
        for choice in stuck(running, now=now, heard_from=heard_from, limit_s=self._silence_limit_s):
            choice.flight.interrupt(Interruption(f"no token for {now - choice.last_token_at:.1f} s while others got theirs", "stuck"))
