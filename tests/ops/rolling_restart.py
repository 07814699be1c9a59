"""Replaces every pod of a release, one after the other, under load: `python -m tests.ops.rolling_restart [--rounds N]`.

The processes are those the chart renders (command lines, settings, probes); the pauses are the chart's too: a pod leaves
the list of endpoints, the preStop time passes, then the signal comes. Prints what was asked and what failed.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.helm.chart import render
from tests.helm.processes import Pod, Release
from tests.helm.scripted import write_model
from tests.ops.load import Load

_PRE_STOP_S = 0.5  # the chart's default is seconds, so that slow endpoints have turned away; there are none here


class Rollout:
    """Restarts pods as a rolling update does: one at a time, and only when the one before is ready."""

    def __init__(self, release: Release, say: Callable[[str], None] = lambda line: None) -> None:
        self._release = release
        self.say = say
        self._leaving: set[int] = set()

    def gateways(self) -> Sequence[Pod]:
        """Those a Service would send new connections to."""
        return [pod for pod in self._release.pods["gateway"] if id(pod) not in self._leaving]

    async def replace(self, pod: Pod) -> None:
        """Stop a pod and start its successor."""
        self._leaving.add(id(pod))
        await asyncio.sleep(_PRE_STOP_S)
        began = time.monotonic()
        pod.stop()
        await asyncio.to_thread(pod.join)
        ended = time.monotonic()
        pod.start()
        await asyncio.to_thread(pod.wait, "readiness")
        self._leaving.discard(id(pod))
        self.say(f"{pod.component}-{pod.index}: drained in {ended - began:.1f} s, ready again in {time.monotonic() - ended:.1f} s")

    async def everything(self) -> None:
        """Each pod once, component by component."""
        for pod in self._release.all():
            await self.replace(pod)


async def play(release: Release, rounds: int = 1, say: Callable[[str], None] = lambda line: None) -> Load:
    """Roll all components under load; returns the load with its answers."""
    rollout, done = Rollout(release, say), asyncio.Event()
    load = Load(rollout.gateways)
    running = asyncio.create_task(load.run(done))
    await asyncio.sleep(1)
    for _ in range(rounds):
        await rollout.everything()
    done.set()
    await running
    return load


def start(folder: Path) -> Release:
    """A release of two of each, with a scripted model."""
    sets = ["gateway.replicas=2", "tokenizer.replicas=2", "detokenizer.replicas=2", "worker.replicas=2"]
    return Release(render("nothing-values.yaml", *sets), folder, write_model(folder / "model", step_ms=4.0))


def main() -> int:
    """Exit code 1 if a request failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.ops.rolling_restart", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="times each pod is replaced")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, start(Path(folder)).running() as release:
        began = time.monotonic()
        load = asyncio.run(play(release, given.rounds, lambda line: print(line, flush=True)))
        resumed = sum(answer.resumes > 0 for answer in load.answers)
        replaced = sum(pod.started - 1 for pod in release.all())
        print(f"{replaced} pods replaced in {time.monotonic() - began:.0f} s under {load.clients} clients")
        print(f"{len(load.answers)} requests, {len(load.failures)} failed, {resumed} went on elsewhere in mid-answer")
        for failure in load.failures:
            print("  " + failure)
        codes = {code for pod in release.all() for code in pod.codes}
        print(f"exit codes: {sorted(codes)}")
    return 1 if load.failures or codes != {0} else 0


if __name__ == "__main__":
    raise SystemExit(main())
