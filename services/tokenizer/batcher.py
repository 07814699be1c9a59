"""Encoding off the event loop.

Short texts share one lane: what arrives while its thread works is encoded together as soon as it is free, so a burst
costs few hand-overs and an idle service adds no delay. Long texts have threads of their own and hold up nobody.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from services.common.errors import Internal, Overloaded
from services.tokenizer.tokenizer import Tokenizer

LONG_TEXT_CHARACTERS = 16_384


@dataclass(slots=True)
class _Job:
    """The texts of one call and where its ids go."""

    texts: Sequence[str]
    add_special: bool
    result: asyncio.Future[list[list[int]]]


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """`size` calls at most are encoded together; an idle lane waits `wait_s` for more than one."""

    size: int
    wait_s: float


class Batcher:
    """Encodes in threads. Use from one event loop; `close` it in the end."""

    def __init__(self, tokenizer: Tokenizer, policy: BatchPolicy, *, long_threads: int, max_queued_texts: int) -> None:
        self._tokenizer = tokenizer
        self._policy = policy
        self._short_pool = ThreadPoolExecutor(1, "encode-short")
        self._long_pool = ThreadPoolExecutor(long_threads, "encode-long")
        self._queue: deque[_Job] = deque()
        self._busy = False
        self._max_queued = max_queued_texts
        self._queued_texts = 0
        self.encode_calls = 0  # hand-overs to a thread

    def close(self) -> None:
        """Let go of the threads."""
        self._short_pool.shutdown(wait=False, cancel_futures=True)
        self._long_pool.shutdown(wait=False, cancel_futures=True)

    @property
    def queued_texts(self) -> int:
        """Texts waiting for a thread or being encoded."""
        return self._queued_texts

    async def encode(self, texts: Sequence[str], *, add_special: bool) -> list[list[int]]:
        """Ids of each text. Raises Overloaded if too many wait."""
        if not texts:
            return []
        if self._queued_texts + len(texts) > self._max_queued:
            raise Overloaded(f"{self._queued_texts} texts wait to be encoded, the limit set by --max-queued-texts is {self._max_queued}")
        self._queued_texts += len(texts)
        try:
            if sum(map(len, texts)) > LONG_TEXT_CHARACTERS:
                return await self._encode_long(texts, add_special)
            job = _Job(texts, add_special, asyncio.get_running_loop().create_future())
            self._queue.append(job)
            if not self._busy:
                self._busy = True
                asyncio.get_running_loop().call_later(self._policy.wait_s, self._start) if self._policy.wait_s else self._start()
            return await job.result
        finally:
            self._queued_texts -= len(texts)

    async def _encode_long(self, texts: Sequence[str], add_special: bool) -> list[list[int]]:
        self.encode_calls += 1
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._long_pool, lambda: self._tokenizer.encode_batch(texts, add_special=add_special))

    def _start(self) -> None:
        jobs: list[_Job] = []
        while self._queue and len(jobs) < self._policy.size:
            job = self._queue.popleft()
            if not job.result.done():
                jobs.append(job)
        if not jobs:
            self._busy = False
            return
        self.encode_calls += 1
        done = asyncio.get_running_loop().run_in_executor(self._short_pool, self._encode_together, jobs)
        done.add_done_callback(lambda future: self._finish(jobs, future))

    def _finish(self, jobs: list[_Job], done: asyncio.Future[list[list[list[int]]]]) -> None:
        self._start()
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        for index, job in enumerate(jobs):
            if job.result.done():
                continue
            if error is None:
                job.result.set_result(done.result()[index])
            else:
                job.result.set_exception(Internal(f"encoding failed: {error}"))

    def _encode_together(self, jobs: list[_Job]) -> list[list[list[int]]]:
        """Runs in the short lane's thread: one library call per setting of add_special."""
        results: dict[int, list[list[int]]] = {}
        for add_special in {job.add_special for job in jobs}:
            chosen = [index for index, job in enumerate(jobs) if job.add_special == add_special]
            ids = iter(self._tokenizer.encode_batch([t for i in chosen for t in jobs[i].texts], add_special=add_special))
            results.update({i: [next(ids) for _ in jobs[i].texts] for i in chosen})
        return [results[index] for index in range(len(jobs))]
