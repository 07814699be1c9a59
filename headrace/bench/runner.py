"""Sends the requests of a run at their times, under the cap, and keeps every outcome."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headrace.bench.backends.interface import Backend
from headrace.bench.record import BenchRequest, Outcome


@dataclass(frozen=True, slots=True)
class Run:
    """All outcomes in the order of the requests, and what sending them cost this process."""

    outcomes: list[Outcome]
    cpu_s: float
    wall_s: float


async def run(
    backend: Backend,
    requests: Sequence[BenchRequest],
    times: Sequence[float],
    cap: int | None,
    clock_zero: float,
    ended: Callable[[float, float], None] = lambda done, whole: None,
) -> Run:
    """`times[i]` is when request i is sent, seconds after `clock_zero`; a full cap makes it wait.

    `ended` is told after each request how many of how many have ended.
    """
    count = 0
    outcomes = [Outcome(i, request.wanted_input_len, request.output_len) for i, request in enumerate(requests)]
    slots = asyncio.Semaphore(cap) if cap is not None else None
    dialogues = _Dialogues(requests)

    async def one(index: int) -> None:
        nonlocal count
        await _until(times[index] + clock_zero)
        request = await dialogues.turn(index)
        try:
            if slots is None:
                await backend.send(request, outcomes[index])
            else:
                async with slots:
                    await backend.send(request, outcomes[index])
        finally:
            dialogues.answered(index, outcomes[index].text)
            count += 1
            ended(count, len(requests))

    gc.collect()
    gc.disable()
    cpu, wall = time.process_time(), time.perf_counter()
    try:
        await asyncio.gather(*(one(index) for index in range(len(requests))))
    finally:
        gc.enable()
    return Run(outcomes, time.process_time() - cpu, time.perf_counter() - wall)


async def _until(moment: float) -> None:
    delay = moment - time.perf_counter()
    if delay > 0:
        await asyncio.sleep(delay)


class _Dialogues:
    """Makes a turn of a conversation wait for the answer before it, and puts the whole history into its prompt."""

    def __init__(self, requests: Sequence[BenchRequest]) -> None:
        self._requests = requests
        self._before: dict[int, int] = {}
        last: dict[int, int] = {}
        for index, request in enumerate(requests):
            if request.conversation is not None:
                if request.conversation in last:
                    self._before[index] = last[request.conversation]
                last[request.conversation] = index
        self._done = {index: asyncio.Event() for index in self._before.values()}
        self._history: dict[int, list[tuple[str, str]]] = {conversation: [] for conversation in last}

    async def turn(self, index: int) -> BenchRequest:
        """The request as it is to be sent, once its turn has come."""
        request = self._requests[index]
        if request.conversation is None:
            return request
        if index in self._before:
            await self._done[self._before[index]].wait()
        history = self._history[request.conversation]
        messages = []
        for question, answer in history:
            messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        messages.append({"role": "user", "content": request.text})
        text = "".join(f"User: {question}\nAssistant:{answer}\n" for question, answer in history)
        return replace(request, messages=tuple(messages), text=f"{text}User: {request.text}\nAssistant:")

    def answered(self, index: int, answer: str) -> None:
        """The request has ended, well or not."""
        request = self._requests[index]
        if request.conversation is not None:
            self._history[request.conversation].append((request.text, answer))
            if index in self._done:
                self._done[index].set()
