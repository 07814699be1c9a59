"""Requests that wait: highest priority first, within a priority the tenant that has least running, then who came first."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class Waiting:
    """One waiting request; `turn` is resolved when it may go."""

    turn: asyncio.Future[None]
    tenant: str
    priority: int


class FairQueue:
    """Waiting requests of one model. Tenants with an empty queue cost nothing."""

    def __init__(self) -> None:
        self._levels: dict[int, dict[str, deque[Waiting]]] = {}
        self._running: Counter[str] = Counter()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def entered(self, tenant: str) -> None:
        self._running[tenant] += 1

    def left(self, tenant: str) -> None:
        self._running[tenant] -= 1
        if not self._running[tenant]:
            del self._running[tenant]

    def push(self, waiting: Waiting) -> None:
        self._levels.setdefault(waiting.priority, {}).setdefault(waiting.tenant, deque()).append(waiting)
        self._length += 1

    def pop(self) -> Waiting:
        """The next one; IndexError if nobody waits. Equal tenants take turns."""
        if not self._levels:
            raise IndexError("nobody waits")
        tenants = self._levels[max(self._levels)]
        tenant = min(tenants, key=lambda name: self._running[name])
        waiting = tenants[tenant][0]
        self.remove(waiting)
        if tenant in tenants:
            tenants[tenant] = tenants.pop(tenant)
        return waiting

    def makes_way_for(self, newcomer: Waiting) -> Waiting | None:
        """Whom to send away for the newcomer when the queue is full; None if the newcomer itself has the weakest claim.

        That is the youngest of the tenant with the longest queue at the lowest priority.
        """
        if not self._levels:
            return None
        lowest = min(self._levels)
        tenants = self._levels[lowest]
        weakest = max(tenants.values(), key=len)
        own = tenants.get(newcomer.tenant, ())
        if lowest < newcomer.priority or (lowest == newcomer.priority and len(weakest) > len(own) + 1):
            return weakest[-1]
        return None

    def ahead_of(self, priority: int) -> int:
        """How many of at least this priority wait."""
        return sum(len(q) for level, tenants in self._levels.items() if level >= priority for q in tenants.values())

    def remove(self, waiting: Waiting) -> None:
        """No effect if it does not wait any more."""
        tenants = self._levels.get(waiting.priority, {})
        queue = tenants.get(waiting.tenant)
        if queue is None or waiting not in queue:
            return
        queue.remove(waiting)
        self._length -= 1
        if not queue:
            del tenants[waiting.tenant]
        if not tenants:
            del self._levels[waiting.priority]
