"""The suite beside vLLM and llama.cpp on this CPU: `python -m benchmarks.cpu_vs_peers --peers DIR [--rounds 3]`.

Nothing is set up by hand: the model is fetched, the peers are installed into DIR if they are not there. All servers
run the same weights; only the measured one is awake, the others are stopped in their tracks. Servers take turns within
a round, prompts are new in every round and equal for all servers, temperature is 0, lengths are exact.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.install import install
from benchmarks.peers.servers import Recipe, Server, headrace, llama_cpp, vllm
from benchmarks.targets import BF16, INT8, LLAMA, NO_RADIX, RADIX, VLLM, Values, table
from headrace.bench.measure import measure
from headrace.bench.report import headline
from headrace.bench.summary import Summary
from headrace.models.catalog import CATALOG
from headrace.models.store import ModelStore
from services.common.config import cache_dir

_KV_BYTES = 2 * 30 * 3 * 64 * 2  # of one token of the embedded model
_POOL_TOKENS = 65_536
_LONGEST_MEMORY_RUN = 64 * (512 + 128)


@dataclass(frozen=True)
class Load:
    """One row of traffic; `fields` are bench flags."""

    name: str
    fields: dict[str, Any]


def groups(shared: int, own: int) -> dict[str, Any]:
    """Four groups of sixteen prompts that share `shared` tokens and have `own` of their own, 32 out, 16 users."""
    sizes = {"gsp_system_prompt_len": shared, "gsp_question_len": own, "gsp_output_len": 32}
    return {"dataset_name": "shared-prefix", "max_concurrency": 16, "gsp_num_groups": 4, "gsp_prompts_per_group": 16, **sizes}


LOADS = (
    Load("1 user", {"num_prompts": 4, "max_concurrency": 1}),
    Load("8 users", {"num_prompts": 24, "max_concurrency": 8}),
    Load("32 users", {"num_prompts": 64, "max_concurrency": 32}),
    Load("shared prefix", groups(1024, 64)),
)
LONG_PREFIX = Load("long prefix", groups(2048, 128))


class Session:
    """Collects values over rounds; every server is stopped at the end."""

    def __init__(self, folder: Path, stack: ExitStack, seed: int) -> None:
        self.values: Values = defaultdict(list)
        self._folder, self._stack, self._seed = folder, stack, seed
        self._runs = 0

    def start(self, recipe: Recipe) -> Server:
        """A server that has answered once, and is paused."""
        print(f"starting {recipe.name}", flush=True)
        server = Server(recipe, self._folder / f"{recipe.name.replace(' ', '-')}.log")
        self._stack.callback(server.stop)
        server.wait()
        print(f"  first answer after {server.first_answer_s:.1f} s", flush=True)
        server.pause()
        return server

    def round(self, servers: Sequence[Server], load: Load) -> None:
        """Each server once, in an order that rotates."""
        self._runs += 1
        turn = self._runs % len(servers)
        for server in (*servers[turn:], *servers[:turn]):
            server.resume()
            done = asyncio.run(measure(server.bench(seed=self._seed + self._runs, **load.fields)))
            server.pause()
            print(f"  {load.name:14} {server.recipe.name:18} {headline(done.summary, done.about)}", flush=True)
            if done.summary.succeeded:
                self._note(load.name, server.recipe.name, done.summary)

    def _note(self, load: str, name: str, found: Summary) -> None:
        measured = {
            "TPOT": 1e3 * found.tpot.median,
            "TTFT": 1e3 * found.ttft.median,
            "tok/s": found.output_rate,
            "p99 ITL": 1e3 * found.itl.p99,
            "duration": found.duration,
        }
        for metric, value in measured.items():
            self.values[(load, metric, name)].append(value)

    def weigh(self, server: Server) -> None:
        """Memory without the key-value cache that the runs so far can have written."""
        cache = min(_POOL_TOKENS, _LONGEST_MEMORY_RUN) * _KV_BYTES
        self.values[("memory", "PSS - KV", server.recipe.name)].append((server.pss_bytes() - cache) / 2**20)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; with --json store every value."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, required=True, help="folder of the peers' environments; made if missing")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(2), "big") * 1000)
    parser.add_argument("--skip", nargs="*", default=[], choices=["llama.cpp", "prefix", "bf16", "int8"], help="leave these out")
    parser.add_argument("--loads", nargs="*", default=[load.name for load in LOADS], choices=[load.name for load in LOADS])
    parser.add_argument("--logs", type=Path, default=Path("/tmp/headrace-bench"))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are stopped
    args.logs.mkdir(parents=True, exist_ok=True)
    install(args.peers)
    store = ModelStore(cache_dir())
    model = store.ensure(CATALOG[0], print)
    floors = floor(model)
    with ExitStack() as stack:
        session = Session(args.logs, stack, args.seed)
        beside_peers(session, args, model, store.gguf(CATALOG[0]))
        if "prefix" not in args.skip:
            radix_on_and_off(session, args.rounds, model)
    print("\n" + table(session.values, floors))
    if args.json:
        args.json.write_text(json.dumps({"/".join(key): found for key, found in session.values.items()}, indent=1))
    return 0


def beside_peers(session: Session, args: argparse.Namespace, model: Path, gguf: Path) -> None:
    """All loads against all servers, then memory, then the second start."""
    pool = ("--max-total-tokens", str(_POOL_TOKENS))
    recipes = [vllm(args.peers / "vllm", model, 33000)]
    if "llama.cpp" not in args.skip:
        recipes.append(llama_cpp(args.peers / "llamacpp", gguf, 33100))
    if "int8" not in args.skip:
        recipes.append(headrace(INT8, model, 34000, "--quantization", "int8", *pool))
    if "bf16" not in args.skip:
        recipes.append(headrace(BF16, model, 36000, "--quantization", "none", *pool))
    servers = [session.start(recipe) for recipe in recipes]
    for number in range(args.rounds):
        print(f"round {number + 1} of {args.rounds}", flush=True)
        for load in (load for load in LOADS if load.name in args.loads):
            some = [s for s in servers if s.recipe.name != LLAMA or load.name == "1 user"]
            session.round(some, load)
    for server in servers:
        if server.recipe.name != LLAMA:
            session.weigh(server)
        server.stop()
    for recipe in recipes:
        if recipe.name in (INT8, BF16, VLLM):
            again = session.start(recipe)
            session.values[("second start", "seconds", recipe.name)].append(again.first_answer_s)
            again.stop()


def radix_on_and_off(session: Session, rounds: int, model: Path) -> None:
    """What the prefix cache gives the same server."""
    pool = ("--max-total-tokens", str(_POOL_TOKENS))
    on = session.start(headrace(RADIX, model, 38000, *pool))
    off = session.start(headrace(NO_RADIX, model, 40000, "--disable-radix-cache", *pool))
    for _ in range(rounds):
        session.round([on, off], LONG_PREFIX)
    on.stop()
    off.stop()


def floor(model: Path) -> dict[tuple[str, str], float]:
    """What the matrix products alone would take, in the units of the table."""
    raw = subprocess.run([sys.executable, "-m", "benchmarks.floor", str(model)], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(raw.stdout)
    per_prompt = found["prefill"] / 1e3
    rates = {n: n / (found[f"decode_{n}"] / 1e3 + n * per_prompt / 128) for n in (8, 32)}  # a prefill per 128 tokens
    return {
        ("1 user", "TPOT"): found["decode_1"],
        ("1 user", "TTFT"): found["prefill"],
        **{(f"{users} users", "tok/s"): rate for users, rate in rates.items()},
    }


if __name__ == "__main__":
    raise SystemExit(main())
