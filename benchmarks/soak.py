"""`make soak`: the whole suite on the embedded model for half an hour, asked twice as much as it can do.

    python -m benchmarks.soak [--minutes 30] [--rate R]

The pool is 16,384 tokens; answers are uniformly 10 to 60 % as long as they may be, so that admission has to guess.
First the knee is measured (a closed loop at rising concurrency), then requests arrive at twice its rate. What the
bounded queue refuses with 429 is answered; everything else must be answered whole. Prints a table of verdicts; the exit
code is 1 if one is bad.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.programs import free_port, program, wait_http
from benchmarks.soak_load import Asks, Load, Tally
from benchmarks.soak_watch import Watched, find_processes, read_metrics, rss_slope
from headrace.bench.knee import Level, knee

MODEL = "smollm2-135m-instruct"
POOL_TOKENS = 16_384
QUEUE = 64
MAX_NEW_TOKENS = 512
_LEVELS = (1, 2, 4, 8, 16, 32)
_WATCH_EVERY_S = 10.0
_SETTLE_S = 30.0
_LAST_SHARE = 2 / 3  # of the run in which memory must stand still: 20 of 30 minutes
_MOST_MIB_A_MINUTE = 1.0
_MOST_RETRACTIONS_A_MINUTE = 1.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of the table."""

    what: str
    found: str
    wanted: str
    good: bool


@dataclass(frozen=True, slots=True)
class Before:
    """The idle suite after its warm-up: what it must return to."""

    descriptors: dict[str, int]
    tasks: dict[str, int | None]


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; see the module's text."""
    parser = argparse.ArgumentParser(description="a long load over the whole suite, and what leaked")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, help="requests per second; else twice the measured knee")
    parser.add_argument("--knee-seconds", type=float, default=12.0, help="length of each level of the closed loop")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path, help="where the suite's output goes; else it is shown if something is bad")
    parser.add_argument("flags", nargs="*", help="further flags for `headrace up`, after --")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through the blocks that end the suite
    with tempfile.TemporaryDirectory() as folder:
        log = options.log or Path(folder) / "suite.log"
        with _suite(log, options.flags) as (launcher, port):
            verdicts = asyncio.run(_Soak(options, launcher, port).run())
        _print(verdicts)
        good = all(verdict.good for verdict in verdicts)
        if not good and options.log is None:
            print(log.read_text(errors="replace")[-6000:], file=sys.stderr)
    return 0 if good else 1


@contextlib.contextmanager
def _suite(log: Path, flags: Sequence[str]) -> Iterator[tuple[int, int]]:
    port = free_port()
    command = [sys.executable, "-m", "headrace", "up", "--model", MODEL, "--port", str(port)]
    command += ["--max-total-tokens", str(POOL_TOKENS), "--max-queued-requests", str(QUEUE), "--gateway.log-level", "warning"]
    with program([*command, *flags], log) as child:
        wait_http(port, "/ready", child, log)
        yield child.pid, port


class _Soak:
    """One run."""

    def __init__(self, options: argparse.Namespace, launcher: int, port: int) -> None:
        self._options = options
        self._url = f"http://127.0.0.1:{port}"
        self._launcher = launcher
        self._watched: list[Watched] = []
        self._tally = Tally()
        self._began = 0.0

    async def run(self) -> list[Verdict]:
        asks = Asks(MODEL, self._eos(), MAX_NEW_TOKENS, self._options.seed)
        load = Load(self._url, asks)
        knee_rate = None if self._options.rate else await self._knee(load, asks)
        rate = self._options.rate or 2 * (knee_rate or 0.0)
        load.close()
        await self._until_idle()
        self._watched = find_processes(self._launcher)
        before = await self._idle_state()
        print(f"[soak] {rate:.2f} requests a second for {self._options.minutes:g} minutes", flush=True)
        counters = self._worker_metrics()
        self._began = time.monotonic()
        watching = asyncio.create_task(self._watch())
        seconds = 60 * self._options.minutes
        await load.open(rate, seconds, self._tally, self._options.seed)
        if watching.done():
            watching.result()  # it looks until it is cancelled, or a process is gone
        watching.cancel()
        minutes = (time.monotonic() - self._began) / 60
        load.close()
        await self._until_idle()
        return self._verdicts(before, counters, minutes, seconds)

    async def _knee(self, load: Load, asks: Asks) -> float:
        """Requests a second where more streams stop buying throughput."""
        levels = []
        await load.closed(2, 2.0)
        for streams in _LEVELS:
            began = time.monotonic()
            tally = await load.closed(streams, self._options.knee_seconds)
            if tally.lost:
                raise RuntimeError(f"the suite loses requests before the soak has begun: {tally}")
            rate = tally.output_tokens / (time.monotonic() - began)
            print(f"[soak] {streams} streams: {rate:.0f} tokens a second", flush=True)
            levels.append(Level(streams, rate, 0, 0, 0, 0, 0))
        best = knee(levels, 0.05)
        print(f"[soak] knee: {best.cap} streams, {best.output_rate / asks.mean_length:.2f} requests a second", flush=True)
        return best.output_rate / asks.mean_length

    async def _watch(self) -> None:
        said = 0.0
        while True:
            at = time.monotonic() - self._began
            await asyncio.to_thread(self._look, at)
            if at - said >= 60:
                said = at
                ended = ", ".join(f"{count} {how}" for how, count in sorted(self._tally.ended.items()))
                memory = ", ".join(f"{one.name} {one.samples[-1].rss_mib:.0f}" for one in self._watched)
                print(f"[soak] {at / 60:.0f} min: {self._tally.sent} sent, {ended}; MiB: {memory}", flush=True)
            await asyncio.sleep(_WATCH_EVERY_S)

    def _look(self, at: float) -> None:
        for one in self._watched:
            one.look(at)

    async def _until_idle(self) -> None:
        """Until nothing runs or waits, and connections had time to close."""
        until = time.monotonic() + _SETTLE_S
        while time.monotonic() < until:
            load = await asyncio.to_thread(self._get, "/v1/loads")
            if load["total"]["running"] == 0 and load["total"]["waiting"] == 0 and load["gateway"]["in_flight"] == 0:
                break
            await asyncio.sleep(0.5)
        await asyncio.sleep(2.0)

    async def _idle_state(self) -> Before:
        await asyncio.to_thread(self._look, -1.0)
        state = Before(
            {one.name: one.samples[-1].descriptors for one in self._watched}, {one.name: one.samples[-1].tasks for one in self._watched}
        )
        for one in self._watched:
            one.samples.clear()
        return state

    def _eos(self) -> int:
        return int(self._get("/get_model_info")["eos_token_ids"][0])

    def _get(self, path: str, method: str = "GET") -> Any:
        with urllib.request.urlopen(urllib.request.Request(self._url + path, method=method), timeout=30) as answer:
            return json.load(answer)

    def _worker_metrics(self) -> dict[str, float]:
        return read_metrics(next(one.metrics_port for one in self._watched if one.name == "scheduler" and one.metrics_port))

    # ------------------------------------------------------------------ verdicts

    def _verdicts(self, before: Before, counters: dict[str, float], minutes: float, seconds: float) -> list[Verdict]:
        tally = self._tally
        ended = ", ".join(f"{count} {how}" for how, count in sorted(tally.ended.items()))
        verdicts = [Verdict("requests lost", f"{tally.lost} of {tally.sent} ({ended})", "0", tally.lost == 0)]
        for how, detail in tally.examples.items():
            print(f"[soak] first {how!r}: {detail}")
        now = self._worker_metrics()
        retractions = now["headrace_worker_retractions_total"] - counters["headrace_worker_retractions_total"]
        verdicts.append(
            Verdict(
                "retractions a minute",
                f"{retractions / minutes:.2f} ({retractions:.0f})",
                f"under {_MOST_RETRACTIONS_A_MINUTE:g}",
                retractions / minutes < _MOST_RETRACTIONS_A_MINUTE,
            )
        )
        verdicts += self._slots()
        for one in self._watched:
            verdicts += of_process(one, before, seconds * (1 - _LAST_SHARE))
        return verdicts

    def _slots(self) -> list[Verdict]:
        """Idle, no slot is held; with the cache emptied, every slot is free."""
        held = self._get("/v1/loads")["loads"][0]["kv_used_tokens"]
        with urllib.request.urlopen(urllib.request.Request(self._url + "/flush_cache", method="POST"), timeout=30):
            pass
        now = self._worker_metrics()
        free = now["headrace_worker_kv_free_tokens"]
        return [
            Verdict("slots held when idle", f"{held}", "0", held == 0),
            Verdict("slots free after a flush", f"{free:.0f}", f"{POOL_TOKENS}", free == POOL_TOKENS),
        ]


def of_process(one: Watched, before: Before, from_s: float) -> list[Verdict]:
    """Memory over the last part of the run; descriptors and tasks after it, against the idle suite before it."""
    samples = one.after(from_s)
    rise = rss_slope(samples)
    verdicts = [
        Verdict(
            f"{one.name}: MiB a minute",
            f"{rise:+.2f} ({samples[0].rss_mib:.0f} to {samples[-1].rss_mib:.0f} MiB)" if samples else "not seen",
            f"under {_MOST_MIB_A_MINUTE:g}",
            bool(samples) and rise < _MOST_MIB_A_MINUTE,
        )
    ]
    one.look(0.0)
    last = one.samples[-1]
    held = before.descriptors[one.name]
    verdicts.append(Verdict(f"{one.name}: descriptors", f"{last.descriptors}", f"at most {held + 2}", last.descriptors <= held + 2))
    idle_tasks = before.tasks[one.name]
    if idle_tasks is not None and last.tasks is not None:
        verdicts.append(Verdict(f"{one.name}: asyncio tasks", f"{last.tasks}", f"at most {idle_tasks + 1}", last.tasks <= idle_tasks + 1))
    return verdicts


def _print(verdicts: Sequence[Verdict]) -> None:
    wide = [max(len(getattr(verdict, column)) for verdict in verdicts) for column in ("what", "found", "wanted")]
    for verdict in verdicts:
        cells = (verdict.what.ljust(wide[0]), verdict.found.ljust(wide[1]), verdict.wanted.ljust(wide[2]))
        print("  ".join((*cells, "good" if verdict.good else "BAD")))


if __name__ == "__main__":
    raise SystemExit(main())
