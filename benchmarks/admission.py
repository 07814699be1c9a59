"""Does the adaptive limit find the knee of a real fleet? More clients than it can serve, under fixed limits and under the adaptive one.

    python -m benchmarks.admission --limits 4,16,64,adaptive --seconds 30 --adaptive-seconds 150

Real workers of one thread each with the embedded model; `--clients` ask short questions as fast as they are answered. For each
limit, over the second half of its time: tokens per second and their share of the best fixed limit's, the time from asking to
the first token (most of it in the gateway's queue) and from being let in to it (what the limit is for), and the limit in force.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import re
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import aiohttp

from tests.fleet.fleet import Fleet
from tests.fleet.test_embedded_model import settings

OUTPUT = 16
_WORDS = ["river", "stone", "mill", "water", "light", "wheel", "grain", "road", "field", "winter", "bread", "song"]


@dataclass
class Seen:
    """What clients saw of one limit in the second half: seconds to the first token and after it, tokens; (second, limit) from the start."""

    first_s: list[float] = field(default_factory=list)
    inside_s: list[float] = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0
    limits: list[tuple[float, float]] = field(default_factory=list)
    refused: int = 0

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


async def _ask(session: aiohttp.ClientSession, url: str, number: int, seen: Seen, since: float) -> None:
    prompt = " ".join(_WORDS[(number * 7 + i * (1 + number % 5)) % len(_WORDS)] for i in range(24))
    body = {"text": f"{number} {prompt}", "sampling_params": {"max_new_tokens": OUTPUT, "ignore_eos": True, "temperature": 0}}
    async with session.post(f"{url}/generate", json=body) as answer:
        said = await answer.json()
        if answer.status == 429:
            seen.refused += 1
            await asyncio.sleep(float(answer.headers["retry-after"]))
            return
        assert answer.status == 200, said
    if time.monotonic() >= since:
        meta = said["meta_info"]
        seen.tokens += meta["completion_tokens"]
        seen.first_s.append(meta["first_token_latency"])
        seen.inside_s.append(meta["e2e_latency"] - meta["first_token_latency"])


async def _watch(url: str, seen: Seen, began: float) -> None:
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"{url}/metrics") as answer:
                found = re.search(r"^headrace_limit\{[^}]*\} (\S+)$", await answer.text(), re.MULTILINE)
            if found:
                seen.limits.append((time.monotonic() - began, float(found[1])))
            await asyncio.sleep(0.5)


async def run(limit: str, seconds: float, options: argparse.Namespace, folder: Path) -> Seen:
    """One fleet under one limit."""
    made = settings()
    made["worker"]["max_running_requests"] = options.slots
    made["gateway"] = {"max_concurrent_requests": limit, "metrics_on_main_port": "true", "queue_timeout_secs": 600}
    seen, numbers = Seen(), itertools.count()
    async with Fleet(folder, made, workers=options.workers).running(180) as fleet:
        until, since = time.monotonic() + seconds, time.monotonic() + seconds / 2

        async def client() -> None:
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=900)) as session:
                while time.monotonic() < until:
                    await _ask(session, fleet.url, next(numbers), seen, since)

        watch = asyncio.create_task(_watch(fleet.url, seen, until - seconds))
        clients = [asyncio.create_task(client()) for _ in range(options.clients)]
        await asyncio.sleep(until - time.monotonic())
        seen.seconds = seconds / 2
        for task in (*clients, watch):
            task.cancel()
        await asyncio.gather(*clients, watch, return_exceptions=True)
    return seen


def main() -> None:
    """Print a line for each limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limits", default="4,16,64,adaptive", help="numbers, -1 for none, adaptive")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--adaptive-seconds", type=float, default=150.0)
    parser.add_argument("--clients", type=int, default=400)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--slots", type=int, default=64, help="what each worker can run")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, Seen] = {}
    for limit in options.limits.split(","):
        seconds = options.adaptive_seconds if limit == "adaptive" else options.seconds
        with tempfile.TemporaryDirectory() as folder:
            found[limit] = seen = asyncio.run(run(limit, seconds, options, Path(folder)))
        steps = [
            f"{value:.0f} from {at:.0f} s" for (_, before), (at, value) in itertools.pairwise([(0.0, 0.0), *seen.limits]) if value != before
        ]
        print(
            f"limit {limit:>8}: {seen.rate:6.0f} tokens/s   first token {median(seen.first_s):6.2f} s   decode of {OUTPUT}"
            f" {median(seen.inside_s):6.2f} s   429s {seen.refused}   limit {', '.join(steps)}",
            flush=True,
        )
    best = max(seen.rate for seen in found.values())
    print("share of the best: " + "  ".join(f"{limit} {seen.rate / best:.2f}" for limit, seen in found.items()))
    if options.json:
        options.json.write_text(json.dumps({limit: {"tokens_per_s": s.rate, "first_s": median(s.first_s)} for limit, s in found.items()}))


if __name__ == "__main__":
    main()
