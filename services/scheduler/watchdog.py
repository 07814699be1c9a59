"""Sees a step that does not end: dumps every thread's stack, then ends the process with a code of its own."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

EXIT_STUCK = 86
_CHECKS_PER_TIMEOUT = 10
_LONGEST_CHECK_S = 1.0
_LATE = 2.0  # pauses: what lies longer between two looks, something else held up the whole process


class Watchdog:
    """Compares the age of the last turn with two limits; the softer one only dumps, once per stuck step.

    Only time in which the watchdog itself ran counts: a process that was stopped and goes on, as on a laptop that slept or
    under a debugger, is not stuck because the clock went on.
    """

    def __init__(
        self,
        turn_age_s: Callable[[], float],
        *,
        timeout_s: float,
        soft_timeout_s: float | None,
        on_stuck: Callable[[], Awaitable[None]],
        also_dump: Callable[[], None] = lambda: None,
        leave: Callable[[int], None] = os._exit,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_stuck` marks the process as dead before `leave(EXIT_STUCK)`; `also_dump` writes stacks this process lacks.

        A timeout of 0 turns a limit off.
        """
        self._also_dump = also_dump
        self._turn_age_s = turn_age_s
        self._timeout_s = timeout_s
        self._soft_timeout_s = soft_timeout_s
        self._on_stuck = on_stuck
        self._leave = leave
        self._dumped = False
        limits = [limit for limit in (timeout_s, soft_timeout_s) if limit]
        self._pause_s = min(min(limits, default=0.0) / _CHECKS_PER_TIMEOUT, _LONGEST_CHECK_S)
        self._clock = clock
        self._looked_at = clock()
        self._watched_s = 0.0  # of the age of the last turn, while the watchdog ran

    async def run(self) -> None:
        """Check for ever."""
        while self._pause_s:
            await asyncio.sleep(self._pause_s)
            await self.check()

    async def check(self) -> None:
        """Look once."""
        age = self._watched_age_s()
        if self._soft_timeout_s and age > self._soft_timeout_s:
            if not self._dumped:
                self._dumped = True
                self._dump("a step takes long", age)
        else:
            self._dumped = False
        if self._timeout_s and age > self._timeout_s:
            self._dump("a step is stuck; this worker ends", age)
            await self._on_stuck()
            self._leave(EXIT_STUCK)

    def _watched_age_s(self) -> float:
        age, now = self._turn_age_s(), self._clock()
        passed, self._looked_at = now - self._looked_at, now
        awake = min(passed, _LATE * self._pause_s)
        self._watched_s = min(age, awake) if age < passed else self._watched_s + awake
        return min(age, self._watched_s)

    def _dump(self, message: str, age: float) -> None:
        log.error(message, extra={"age_s": round(age, 1)})
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
        self._also_dump()
