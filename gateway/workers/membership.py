"""Makes the registry's workers of one source equal to what that source says, without cutting a stream."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from gateway.workers.registry import Registry
from gateway.workers.worker import Worker
from services.common.errors import Conflict, HeadraceError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address a source knows. leaving: it is about to go and gets nothing new."""

    leaving: bool = False


async def leave(registry: Registry, worker: Worker, grace_s: float, reason: str) -> None:
    """Drain the worker and take it out when it is empty, or after `grace_s`; what runs there then goes on elsewhere."""
    loop = asyncio.get_running_loop()
    until = loop.time() + grace_s
    registry.drain(worker.id, reason)
    while worker.in_flight.requests and (left := until - loop.time()) > 0:
        await registry.wait_for_change(left)
    if worker in registry.workers():
        registry.remove(worker.id)


class Membership:
    """The workers that `source` has brought. A source never touches workers of another."""

    def __init__(self, registry: Registry, source: str, *, grace_s: float) -> None:
        self._registry = registry
        self._source = source
        self._grace_s = grace_s
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self.changes: Counter[str] = Counter()

    def apply(self, endpoints: Mapping[str, Endpoint]) -> None:
        """`endpoints`: normalised address → endpoint; all that the source knows at this moment."""
        mine = {worker.id: worker for worker in self._registry.workers() if worker.source == self._source}
        for address, worker in mine.items():
            endpoint = endpoints.get(address)
            if endpoint is None:
                self._let_go(worker)
            elif endpoint.leaving:
                self._go_quiet(worker)
            else:
                self._keep(worker)
        for address, endpoint in endpoints.items():
            if address not in mine and not endpoint.leaving:
                self._add(address)

    async def close(self) -> None:
        """Stop waiting for workers that are leaving."""
        tasks = list(self._leaving.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _add(self, address: str) -> None:
        try:
            self._registry.add(address, source=self._source)
            self.changes["added"] += 1
        except Conflict:
            return
        except HeadraceError as error:
            self.changes["error"] += 1
            log.warning("discovered address is unusable", extra={"source": self._source, "reason": error.message})

    def _keep(self, worker: Worker) -> None:
        task = self._leaving.pop(worker.id, None)
        if task is not None:
            task.cancel()
        if task is not None or worker.signals.drained.startswith(self._source):
            self.changes["changed"] += 1
            self._registry.undrain(worker.id)

    def _go_quiet(self, worker: Worker) -> None:
        if not worker.signals.drained:
            self.changes["changed"] += 1
            self._registry.drain(worker.id, f"{self._source} says it is leaving")

    def _let_go(self, worker: Worker) -> None:
        if worker.id in self._leaving:
            return
        self.changes["removed"] += 1
        task = asyncio.create_task(leave(self._registry, worker, self._grace_s, f"{self._source} no longer lists it"))
        self._leaving[worker.id] = task
        task.add_done_callback(lambda done: self._left(worker.id, done))

    def _left(self, worker_id: str, task: asyncio.Task[None]) -> None:
        if self._leaving.get(worker_id) is task:
            del self._leaving[worker_id]
