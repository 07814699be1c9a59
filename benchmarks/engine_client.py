"""The engine as a thread of the worker and as a process of its own: gaps between tokens, alternating rounds.

    python -m benchmarks.engine_client --rounds 3

Two suites, of which one is awake at a time; prompts are new in every round and equal for both. Printed are medians over the
rounds and the ratio of each round, process to thread.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections import defaultdict
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

FORMS = ("thread", "process")
LOADS: dict[str, dict[str, Any]] = {
    "8 users": {"num_prompts": 16, "max_concurrency": 8, "random_input_len": 64, "random_output_len": 96},
    "32 users": {"num_prompts": 32, "max_concurrency": 32, "random_input_len": 64, "random_output_len": 96},
}
Found = dict[tuple[str, str], dict[str, list[float]]]


def figures(found: Summary) -> dict[str, float]:
    """What is compared, in ms and tokens a second."""
    return {
        "p50 ITL": 1e3 * found.itl.median,
        "p99 ITL": 1e3 * found.itl.p99,
        "longest": 1e3 * found.itl.max,
        "TTFT": 1e3 * found.ttft.median,
        "tok/s": found.output_rate,
    }


def run(servers: dict[str, Server], rounds: int, seed: int) -> Found:
    """Both forms once a round for each load, in an order that alternates."""
    found: Found = defaultdict(lambda: defaultdict(list))
    for number in range(rounds):
        for load in LOADS:
            for form in FORMS if number % 2 == 0 else FORMS[::-1]:
                servers[form].resume()
                config = BenchConfig(backend="openai", base_url=servers[form].url, model=MODEL_NAME, seed=seed + number, **LOADS[load])
                done = asyncio.run(measure(config))
                servers[form].pause()
                for figure, value in figures(done.summary).items():
                    found[load, form][figure].append(value)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    model = ModelStore(cache_dir()).ensure(CATALOG[0], print)
    with ExitStack() as stack, TemporaryDirectory() as logs:
        servers: dict[str, Server] = {}
        for number, form in enumerate(FORMS):
            recipe = headrace(form, model, 36_000 + 2000 * number, "--engine-client", form, pool_tokens=65_536, token_bytes=0)
            servers[form] = Server(recipe, Path(logs) / f"{number}.log")
            stack.callback(servers[form].stop)
            servers[form].wait()
            servers[form].pause()
        found = run(servers, options.rounds, options.seed)
    for load in LOADS:
        print(load)
        for form in FORMS:
            print(f"  {form:8}", "  ".join(f"{name} {statistics.median(each):7.1f}" for name, each in found[load, form].items()))
        ratios = {
            name: [b / a for a, b in zip(each, found[load, "process"][name], strict=True)] for name, each in found[load, "thread"].items()
        }
        print("  ratio   ", "  ".join(f"{name} {' '.join(f'{value:.2f}' for value in each)}" for name, each in ratios.items()), flush=True)


if __name__ == "__main__":
    main()
