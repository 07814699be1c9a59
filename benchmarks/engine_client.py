"""The engine as a thread of the worker and as a process of its own: gaps between tokens, alternating rounds.

    python -m benchmarks.engine_client --rounds 3

Two suites, of which one is awake at a time; prompts are new in every round and equal for both. Printed are medians over the
rounds and the ratio of each round, process to thread.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from benchmarks.variants import suites, take_turns
from headrace.bench.summary import Summary

FORMS = ("thread", "process")
LOADS: dict[str, dict[str, Any]] = {
    "8 users": {"num_prompts": 16, "max_concurrency": 8, "random_input_len": 64, "random_output_len": 96},
    "32 users": {"num_prompts": 32, "max_concurrency": 32, "random_input_len": 64, "random_output_len": 96},
}


def figures(found: Summary) -> dict[str, float]:
    """What is compared, in ms and tokens a second."""
    return {
        "p50 ITL": 1e3 * found.itl.median,
        "p99 ITL": 1e3 * found.itl.p99,
        "longest": 1e3 * found.itl.max,
        "TTFT": 1e3 * found.ttft.median,
        "tok/s": found.output_rate,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with suites({form: ("--engine-client", form) for form in FORMS}, first_port=36_000) as servers:
        found = take_turns(servers, LOADS, figures, rounds=options.rounds, seed=options.seed)
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
