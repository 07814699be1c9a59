"""What routing by prefix is worth: multi-turn chats over three workers whose caches are too small for all of them.

    python -m benchmarks.routing --model-path MODEL_FOLDER [--engine real|scripted|simulated] [--chats 18] [--turns 5] [--json FILE]

Each way of routing gets a fresh fleet and the same chats in the same order:
  cache_aware   the gateway follows the workers' cache events
  approximate   cache_aware without events: the gateway remembers what it sent where
  round_robin   prefixes are ignored
Hit rate is cached over prompt tokens as the workers report them; TTFT is what the client sees. Ratios are to round_robin.
With `--engine scripted` the schedulers and caches are real and the model is played at a fixed speed, which takes the noise of
three models on few cores out of the times. With `--engine simulated` there are no processes and no clock: policy, scheduler
and cache are the real ones and a chat takes milliseconds, so that many seeds can be tried (`--seeds`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median

import aiohttp

from benchmarks.gateway import WORDS
from benchmarks.programs import free_port, program, wait_grpc, wait_http
from benchmarks.simulated_fleet import MODEL, Chats, Machine, SimulatedFleet, play
from gateway.routing.factory import PolicySettings

WAYS = {"round_robin": ("round_robin", False), "cache_aware": ("cache_aware", False), "approximate": ("cache_aware", True)}


@dataclass
class Seen:
    """All turns of one way of routing."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    first_ms: list[float] = field(default_factory=list)
    seconds: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def hit_rate(self) -> float:
        return self.cached_tokens / max(1, self.prompt_tokens)


@contextlib.contextmanager
def fleet(options: argparse.Namespace, way: str, folder: Path) -> Iterator[str]:
    """Tokenizer, detokenizer, workers and gateway; yields the gateway's URL."""
    policy, silent = WAYS[way]
    names = ["tokenizer", "detokenizer", "gateway", *(f"worker{i}" for i in range(options.workers))]
    ports = {name: free_port() for name in names}
    quiet = ["--metrics-port", "-2", "--log-level", "warning"]
    script = folder / "script.json"
    script.write_text(json.dumps({"vocab_size": 49152, "step_ms": 12.0, "prefill_us_per_token": 400.0}))
    scripted = ["--load-format", "scripted", "--script", str(script)]
    with contextlib.ExitStack() as stack:

        def run(name: str, module: str, *flags: str) -> None:
            command = [sys.executable, "-m", module, "--port", str(ports[name]), *flags, *quiet]
            children[name] = stack.enter_context(program(command, folder / f"{way}-{name}.log"))

        children: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("tokenizer", "detokenizer"):
            run(name, f"services.{name}", "--model-path", options.model_path)
        for name in names[3:]:
            own = ["--model-path", options.model_path, "--max-total-tokens", str(options.pool), "--cpu-threads", "1"]
            own += scripted if options.engine == "scripted" else []
            run(name, "services.scheduler", *own, *(["--disable-cache-events"] if silent else []))
        for name in names:
            if name != "gateway":
                wait_grpc(ports[name])
        links = ["--tokenizer", f"127.0.0.1:{ports['tokenizer']}", "--detokenizer", f"127.0.0.1:{ports['detokenizer']}"]
        workers = [f"127.0.0.1:{ports[name]}" for name in names[3:]]
        run("gateway", "gateway", "--policy", policy, "--grpc-port", "0", *links, "--workers", *workers)
        url = f"http://127.0.0.1:{ports['gateway']}"
        wait_http(ports["gateway"], "/ready", children["gateway"], folder / f"{way}-gateway.log", 300)
        wait_workers(url, options.workers)
        yield url


def wait_workers(url: str, count: int) -> None:
    """Until so many workers are ready. Raises RuntimeError."""
    until = time.monotonic() + 300
    while time.monotonic() < until:
        with urllib.request.urlopen(f"{url}/workers") as answer:
            if sum(worker["state"] == "ready" for worker in json.load(answer)["workers"]) == count:
                return
        time.sleep(0.2)
    raise RuntimeError("the workers did not become ready")


async def turn(session: aiohttp.ClientSession, url: str, history: str, tokens: int, seen: Seen) -> str:
    """One request; returns what was answered."""
    body = {"text": history, "stream": True, "sampling_params": {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}}
    began = time.perf_counter()
    first, event = None, None
    async with session.post(f"{url}/generate", json=body, headers={"x-headrace-explain": "1"}) as answer:
        answer.raise_for_status()
        seen.reasons[answer.headers["x-headrace-route"]] += 1
        async for line in answer.content:
            if line.startswith(b"data: {"):
                first = first or time.perf_counter()
                event = json.loads(line[6:])
    if first is None or event is None or "error" in event:
        raise RuntimeError(f"no answer: {event}")
    meta = event["meta_info"]
    seen.first_ms.append(1000 * (first - began))
    seen.prompt_tokens += meta["prompt_tokens"]
    seen.cached_tokens += meta["cached_tokens"]
    seen.output_tokens += meta["completion_tokens"]
    return str(event["text"])


async def chats(url: str, options: argparse.Namespace) -> Seen:
    """All chats, turn after turn; within a turn in random order, a few at a time."""
    rng = random.Random(options.seed)
    seen = Seen()
    histories = [f"Chat {rng.random()}. " for _ in range(options.chats)]
    gate = asyncio.Semaphore(options.concurrency)
    began = time.perf_counter()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as session:

        async def one(number: int, said: str) -> None:
            async with gate:
                histories[number] += f"\nUser: {said}\nAssistant:"
                await turn(session, url, histories[number], options.tokens, seen)
                histories[number] += " " + said[::-1][: 4 * options.tokens]

        for _ in range(options.turns):
            order = rng.sample(range(options.chats), options.chats)
            said = [" ".join(rng.choices(WORDS, k=options.words)) for _ in order]
            await asyncio.gather(*(one(number, text) for number, text in zip(order, said, strict=True)))
    seen.seconds = time.perf_counter() - began
    return seen


def simulated(options: argparse.Namespace, way: str) -> Seen:
    """The chats of `--seeds` seeds, one after the other, each with a fleet of its own."""
    policy, silent = WAYS[way]
    machine = Machine(workers=options.workers, pool=options.pool, cores=2, step_ms=8.0, token_us=1000.0, drift=0.5)
    load = Chats(options.chats, options.turns, options.words + 40, options.tokens, options.concurrency)
    seen = Seen()
    for seed in range(options.seed, options.seed + options.seeds):
        fleet = SimulatedFleet(machine, policy, PolicySettings(), silent=silent, seed=seed)
        answers, seconds = play(fleet, load, seed)
        seen.seconds += seconds
        seen.reasons += fleet.registry.group(MODEL).decisions
        for answer in answers:
            seen.prompt_tokens += answer.prompt_tokens
            seen.cached_tokens += answer.cached_tokens
            seen.output_tokens += len(answer.output)
            seen.first_ms.append(1000 * ((answer.first or 0.0) - answer.sent))
    return seen


def measured(options: argparse.Namespace, way: str, folder: Path) -> Seen:
    """The chats through real programs."""
    with fleet(options, way, folder) as url:
        return asyncio.run(chats(url, options))


def report(way: str, seen: Seen, base: Seen | None) -> None:
    """One line, with ratios to round robin where that has run."""
    line = f"{way:12} hit rate {seen.hit_rate:6.1%}  TTFT median {median(seen.first_ms):7.1f} ms, mean {mean(seen.first_ms):7.1f} ms"
    line += f"  {seen.output_tokens / seen.seconds:7.1f} tokens/s"
    if base is not None and base is not seen:
        line += f"   hit rate x{seen.hit_rate / max(1e-9, base.hit_rate):.2f}"
        line += f", median TTFT x{median(seen.first_ms) / median(base.first_ms):.2f} of round robin's"
    print(line, flush=True)
    print(" " * 13 + ", ".join(f"{why} {count}" for why, count in seen.reasons.most_common()), flush=True)


def main() -> None:
    """Run every way of routing and print rates and ratios."""
    parser = argparse.ArgumentParser(description="the worth of routing by prefix")
    parser.add_argument("--model-path", help="not needed for a simulation")
    parser.add_argument("--engine", choices=("real", "scripted", "simulated"), default="real")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--pool", type=int, default=6144, help="tokens one worker can hold; the chats end with three times that")
    parser.add_argument("--chats", type=int, default=18)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--words", type=int, default=150, help="words a user says per turn")
    parser.add_argument("--tokens", type=int, default=32, help="tokens answered per turn")
    parser.add_argument("--concurrency", type=int, default=6)
    parser.add_argument("--ways", nargs="+", choices=tuple(WAYS), default=tuple(WAYS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1, help="simulated only: so many seeds from --seed on")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.engine != "simulated" and not options.model_path:
        parser.error("--model-path is needed")
    results: dict[str, Seen] = {}
    with tempfile.TemporaryDirectory() as name:
        for way in options.ways:
            results[way] = simulated(options, way) if options.engine == "simulated" else measured(options, way, Path(name))
            report(way, results[way], results.get("round_robin"))
    if options.json:
        shown = {way: {"hit_rate": s.hit_rate, "first_ms": s.first_ms, "seconds": s.seconds} for way, s in results.items()}
        options.json.write_text(json.dumps(shown))


if __name__ == "__main__":
    main()
