"""Threads that compile grammars at the lowest priority, each compile with a time limit.

A thread cannot be stopped: a compile over its limit is reported as failed and left to run out, and another thread
takes its place. Where too many run out like that, new grammars are refused until they are done.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from services.common.errors import Overloaded

T = TypeVar("T")
_LOWEST_PRIORITY = 19
_MOST_RUN_OUT = 4


class CompileTimeout(Exception):
    """A compile took longer than allowed."""


@dataclass(eq=False)
class _Job(Generic[T]):
    work: Callable[[], T]
    future: Future[T] = field(default_factory=Future)
    started: float | None = None


class CompilePool:
    """At most `threads` compiles at a time, besides those that run out."""

    def __init__(self, threads: int, limit_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._threads = threads
        self._limit_s = limit_s
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: deque[_Job[object]] = deque()
        self._running: set[_Job[object]] = set()
        self._run_out = 0

    @property
    def waiting(self) -> int:
        """Compiles that wait or run."""
        return len(self._waiting) + len(self._running)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Have `work` done; its result or error arrives in the future. Raises Overloaded if too many compiles ran out."""
        self.expire()
        job: _Job[T] = _Job(work)
        with self._lock:
            if self._run_out >= _MOST_RUN_OUT:
                raise Overloaded(f"{self._run_out} grammars are being compiled beyond their time limit, no more are taken")
            self._waiting.append(job)  # type: ignore[arg-type]
        self._start_threads()
        return job.future

    def expire(self) -> None:
        """Report compiles over their limit as failed. Called by whoever waits."""
        now = self._clock()
        with self._lock:
            late = {job for job in self._running if job.started is not None and now - job.started > self._limit_s}
            self._running -= late
            self._run_out += len(late)
        for job in late:
            job.future.set_exception(CompileTimeout(f"compiling took more than {self._limit_s:g} s"))
        if late:
            self._start_threads()

    def _start_threads(self) -> None:
        while True:
            with self._lock:
                if not self._waiting or len(self._running) >= self._threads:
                    return
                job = self._waiting.popleft()
                job.started = self._clock()
                self._running.add(job)
            threading.Thread(target=self._run, args=(job,), name="grammar-compile", daemon=True).start()

    def _run(self, job: _Job[object]) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST_PRIORITY)
        result, error = None, None
        try:
            result = job.work()
        except BaseException as caught:
            error = caught
        with self._lock:
            in_time = job in self._running
            self._running.discard(job)
            self._run_out -= not in_time
        if in_time and error is not None:
            job.future.set_exception(error)
        elif in_time:
            job.future.set_result(result)
        self._start_threads()
