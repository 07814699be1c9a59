"""Keeps the children alive, and ends them in an order that loses no request."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from collections.abc import Callable, Sequence

from headrace.launcher.child import Child, ChildSpec, Say
from headrace.launcher.restart import RestartPolicy

_UNUSABLE_SETTINGS = 2  # a child's exit code for flags, files or models that no restart can help
_AFTER_DRAIN_S = 10.0
_HURRY_S = 5.0
_BETWEEN_SIGNALS_S = 0.2  # two equal signals sent at once may arrive as one


class GivenUp(Exception):
    """A child cannot be kept running. The message has its last lines."""


class Supervisor:
    """Owns the children. `failure` is set to an exception when one is given up."""

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        say: Say,
        *,
        clock: Callable[[], float] = time.monotonic,
        after_drain_s: float = _AFTER_DRAIN_S,
    ) -> None:
        self._read_end, self._write_end = os.pipe()  # only this process holds the write end
        self.children = [Child(spec, self._read_end, say) for spec in specs]
        self._say, self._clock, self._after_drain_s = say, clock, after_drain_s
        self._stopping = False
        self._hurry = asyncio.Event()
        self._keepers: list[asyncio.Task[None]] = []
        self.failure: asyncio.Future[GivenUp] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        """Start every child at once; each waits for whom it needs."""
        await asyncio.gather(*(child.start() for child in self.children))
        self._keepers = [asyncio.create_task(self._keep(child)) for child in self.children]

    async def _keep(self, child: Child) -> None:
        policy = RestartPolicy()
        while True:
            code = await child.wait()
            if self._stopping:
                return
            delay = policy.on_death(self._clock()) if code != _UNUSABLE_SETTINGS else None
            if delay is None:
                self._give_up(child, code, policy.deaths)
                return
            self._say("headrace", f"{child.spec.name} ended ({_describe(code)}); starting it again in {delay:g} s")
            await asyncio.sleep(delay)
            if self._stopping:
                return
            await child.start()

    def _give_up(self, child: Child, code: int, deaths: int) -> None:
        if not self.failure.done():
            why = "cannot run with these settings" if code == _UNUSABLE_SETTINGS else f"died {deaths} times within a minute"
            lines = "\n".join(f"    {line}" for line in child.last_lines) or "    (it wrote nothing)"
            self.failure.set_result(GivenUp(f"{child.spec.name} {why} ({_describe(code)}). Its last lines:\n{lines}"))

    def hurry(self) -> None:
        """End everything now; what is in flight is lost."""
        self._hurry.set()

    async def stop(self, drain_timeout: float) -> bool:
        """End the children stage by stage. True if all left by themselves.

        A stage has `drain_timeout` seconds and a little more; after `hurry` all have five seconds together.
        """
        self._stopping = True
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        clean = True
        for _, stage in itertools.groupby(sorted(self.children, key=_stage), key=_stage):
            clean &= await self._stop_stage(list(stage), drain_timeout + self._after_drain_s)
        os.close(self._write_end)
        os.close(self._read_end)
        return clean

    async def _stop_stage(self, stage: list[Child], patience_s: float) -> bool:
        alive = [child for child in stage if child.running]
        if not alive:
            return True
        _signal_all(alive, signal.SIGTERM)
        ended = asyncio.create_task(_all_ended(alive))
        hurried = asyncio.create_task(_set(self._hurry))
        await asyncio.wait({ended, hurried}, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if not ended.done() and self._hurry.is_set():
            await asyncio.wait({ended}, timeout=_BETWEEN_SIGNALS_S)
            _signal_all(alive, signal.SIGTERM)  # the second one: leave at once
            await asyncio.wait({ended}, timeout=_HURRY_S)
        if ended.done():
            return True
        self._say("headrace", f"{', '.join(c.spec.name for c in alive if c.running)} did not leave; killing")
        _signal_all(alive, signal.SIGKILL)
        await ended
        return False


async def _all_ended(children: list[Child]) -> None:
    await asyncio.gather(*(child.wait() for child in children))


async def _set(event: asyncio.Event) -> None:
    await event.wait()


def _signal_all(children: list[Child], number: int) -> None:
    for child in children:
        child.signal(number)


def _stage(child: Child) -> int:
    return child.spec.stage


def _describe(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
