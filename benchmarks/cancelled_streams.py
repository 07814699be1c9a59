"""Does a client that leaves in mid-answer leave anything behind? Memory of every service over 20,000 of them.

    python -m benchmarks.cancelled_streams --streams 20000

Gateway, tokenizer, detokenizer and a scripted worker, all real programs. Clients hang up after the first event. Printed
every tenth of the way: resident memory and descriptors of each service; at the end the growth over the last three
quarters, in bytes for each stream, and what still runs, which must be nothing. The first quarter fills caches.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import time
from pathlib import Path

import aiohttp
import psutil

from tests.fleet.fleet import Fleet, Member
from tests.helm.scripted import write_model

_MIB = 1 << 20


def _services(fleet: Fleet) -> dict[str, psutil.Process]:
    def process(member: Member) -> psutil.Process:
        assert member.process is not None
        return psutil.Process(member.process.pid)

    return {member.name: process(member) for member in fleet.members}


async def _hang_up(session: aiohttp.ClientSession, url: str, number: int) -> None:
    """One stream of a prompt of its own, left after its first event."""
    sampling = {"max_new_tokens": 1000, "ignore_eos": True}
    body = {"text": f"{number} times I have asked", "sampling_params": sampling, "stream": True}
    async with session.post(f"{url}/generate", json=body) as answer:
        line = await answer.content.readline()
        if answer.status != 200 or not line.startswith(b"data: {"):
            raise RuntimeError(f"stream {number}: {answer.status} {line[:200]!r}")
        answer.close()


async def _many(url: str, first: int, count: int, at_once: int) -> None:
    numbers = iter(range(first, first + count))

    async def client(session: aiohttp.ClientSession) -> None:
        for number in numbers:
            await _hang_up(session, url, number)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as session:
        await asyncio.gather(*(client(session) for _ in range(at_once)))


async def _left(url: str) -> int:
    """Requests that still run somewhere, once that has stopped falling."""
    running = -1
    async with aiohttp.ClientSession() as session:
        for _ in range(50):
            async with session.get(f"{url}/v1/loads") as answer:
                loads = await answer.json()
            running = loads["gateway"]["in_flight"] + loads["total"]["running"] + loads["total"]["waiting"]
            if not running:
                break
            await asyncio.sleep(0.1)
    return running


async def run(streams: int, at_once: int, folder: Path) -> dict[str, float]:
    """Growth of each service in bytes per stream over the last three quarters; `left` is what still runs."""
    settings = write_model(folder / "model", step_ms=2.0, playbacks=[])
    settings["worker"]["max_total_tokens"] = 20_000
    async with Fleet(folder, settings, workers=1).running() as fleet:
        services = _services(fleet)
        samples: dict[str, list[int]] = {name: [] for name in services}
        step = streams // 20
        began = time.monotonic()
        for part in range(20):
            await _many(fleet.url, part * step, step, at_once)
            await _left(fleet.url)
            for name, process in services.items():
                samples[name].append(process.memory_info().rss)
            if part % 2:
                shown = "  ".join(f"{name} {samples[name][-1] / _MIB:6.1f} ({p.num_fds()})" for name, p in services.items())
                print(f"{(part + 1) * step:6d} streams {time.monotonic() - began:5.0f} s, MiB (descriptors):  {shown}", flush=True)
        grown = {name: (seen[-1] - seen[4]) / (15 * step) for name, seen in samples.items()}
        return {**grown, "left": float(await _left(fleet.url))}


def main() -> None:
    """Entry point of the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=20_000)
    parser.add_argument("--at-once", type=int, default=50, help="clients at a time")
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        found = asyncio.run(run(args.streams, args.at_once, folder))
    left = found.pop("left")
    print("growth, bytes per stream over the last three quarters: " + "  ".join(f"{name} {grown:.0f}" for name, grown in found.items()))
    print(f"requests left: {left:.0f}")


if __name__ == "__main__":
    main()
