"""What the size of prefill chunks costs and gives: `python -m benchmarks.chunk_policy 256 1024 adaptive`.

One server of the whole suite for each policy: a number is a fixed chunk (-1 = whole prompts), `adaptive` the default,
`adaptive:150` another gap between tokens to hold, in milliseconds. One server is awake at a time; prompts are new in every round
and equal for all policies. Printed are medians over rounds: first token of a lone user, throughput and gaps under load.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.peers.servers import MODEL_NAME, Server, headrace
from headrace.bench.config import BenchConfig
from headrace.bench.measure import measure
from headrace.bench.summary import Summary
from headrace.models.catalog import CATALOG
from headrace.models.store import ModelStore
from services.common.config import cache_dir

LOADS: dict[str, dict[str, Any]] = {
    "1 user, 512": {"num_prompts": 4, "max_concurrency": 1, "random_output_len": 16},
    "1 user, 4096": {"num_prompts": 2, "max_concurrency": 1, "random_input_len": 4096, "random_output_len": 4},
    "8 users": {"num_prompts": 24, "max_concurrency": 8},
    "32 users": {"num_prompts": 64, "max_concurrency": 32},
}
Found = dict[tuple[str, str], dict[str, list[float]]]


def flags(policy: str) -> tuple[str, ...]:
    """Flags of a worker with this policy. Raises ValueError for what is none."""
    name, _, target = policy.partition(":")
    if name != "adaptive":
        return "--chunked-prefill-size", str(int(name))
    return ("--itl-target-ms", str(float(target))) if target else ()


def figures(found: Summary) -> dict[str, float]:
    return {
        "TTFT ms": 1e3 * found.ttft.median,
        "p99 TTFT ms": 1e3 * found.ttft.p99,
        "tok/s": found.output_rate,
        "p99 ITL ms": 1e3 * found.itl.p99,
        "longest ms": 1e3 * found.itl.max,
    }


def run(servers: dict[str, Server], loads: Sequence[str], rounds: int, seed: int) -> Found:
    """Every server once a round for each load, in an order that rotates."""
    found: Found = defaultdict(lambda: defaultdict(list))
    for number in range(rounds):
        names = list(servers)
        turn = number % len(names)
        for load in loads:
            for name in (*names[turn:], *names[:turn]):
                servers[name].resume()
                config = BenchConfig(backend="openai", base_url=servers[name].url, model=MODEL_NAME, seed=seed + number, **LOADS[load])
                done = asyncio.run(measure(config))
                servers[name].pause()
                for figure, value in figures(done.summary).items():
                    found[load, name][figure].append(value)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="+", help="a fixed chunk size, adaptive, or adaptive:MS")
    parser.add_argument("--loads", nargs="*", default=list(LOADS), choices=list(LOADS))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quantization", default="auto", choices=["auto", "none", "int8"])
    options, more = parser.parse_known_args()
    model = ModelStore(cache_dir()).ensure(CATALOG[0], print)
    with ExitStack() as stack, TemporaryDirectory() as logs:
        servers: dict[str, Server] = {}
        for number, policy in enumerate(options.policies):
            common = ("--quantization", options.quantization, *more, *flags(policy))
            recipe = headrace(policy, model, 34000 + 2000 * number, *common, pool_tokens=65_536, token_bytes=0)
            servers[policy] = Server(recipe, Path(logs) / f"{number}.log")
            stack.callback(servers[policy].stop)
            servers[policy].wait()
            servers[policy].pause()
        found = run(servers, options.loads, options.rounds, options.seed)
    for load in options.loads:
        print(load)
        for policy in options.policies:
            values = "  ".join(f"{name} {statistics.median(each):8.1f}" for name, each in found[load, policy].items())
            print(f"  {policy:14} {values}", flush=True)


if __name__ == "__main__":
    main()
