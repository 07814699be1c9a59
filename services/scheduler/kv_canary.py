"""Looks at the slots of the KV pool while serving, and says when one has changed that nobody should have written."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from services.scheduler.engine.canary import CanaryEngine

log = logging.getLogger(__name__)

_SLICE = 16  # slots between two looks at the clock
_LONGEST_NS = 5_000_000  # of one call: a turn of running requests waits for it


class KvCorrupted(Exception):
    """A slot of the KV pool was changed behind the engine's back."""


class KvCanary:
    """`sweep` is called between turns and looks at every written slot once an interval, a little at a time."""

    def __init__(
        self,
        engine: CanaryEngine,
        owners: Callable[[int], Sequence[str]],
        count: Callable[[], None],
        *,
        mode: str,
        interval_s: float,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`owners` names who uses a slot; `count` notes a finding; `mode` is log or raise."""
        self._engine, self._owners, self._count = engine, owners, count
        self._raises, self._interval_ns, self._clock = mode == "raise", int(interval_s * 1e9), clock
        self._next_round_ns = clock() + self._interval_ns
        self._at: int | None = None  # slot the running round has come to

    def sweep(self) -> None:
        """Look at a few more slots if a round is due. Raises KvCorrupted in mode raise."""
        now = self._clock()
        if self._at is None:
            if now < self._next_round_ns:
                return
            self._at, self._next_round_ns = 0, now + self._interval_ns
        while self._clock() - now < _LONGEST_NS:
            slots = self._engine.known_after(self._at, _SLICE)
            if not slots.size:
                self._at = None
                return
            self._at = int(slots[-1])
            for slot in self._engine.changed(slots):
                self._tell(slot)

    def _tell(self, slot: int) -> None:
        self._count()
        owners = ", ".join(self._owners(slot)) or "nobody: it is free"
        message = f"KV canary: slot {slot} no longer holds what was written into it; it is used by {owners}"
        if self._raises:
            raise KvCorrupted(message)
        log.error(message, extra={"slot": slot})
