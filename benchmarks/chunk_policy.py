"""What the size of prefill chunks costs and gives: `python -m benchmarks.chunk_policy 256 1024 adaptive`.

One server of the whole suite for each policy: a number is a fixed chunk (-1 = whole prompts), `adaptive` the default,
`adaptive:150` another gap between tokens to hold, in milliseconds. One server is awake at a time; prompts are new in every round
and equal for all policies. Printed are medians over rounds: first token of a lone user, throughput and gaps under load.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from benchmarks.variants import suites, take_turns
from headrace.bench.summary import Summary

LOADS: dict[str, dict[str, Any]] = {
    "1 user, 512": {"num_prompts": 4, "max_concurrency": 1, "random_output_len": 16},
    "1 user, 4096": {"num_prompts": 2, "max_concurrency": 1, "random_input_len": 4096, "random_output_len": 4},
    "8 users": {"num_prompts": 24, "max_concurrency": 8},
    "32 users": {"num_prompts": 64, "max_concurrency": 32},
    "32 users, 5 times": {"num_prompts": 160, "max_concurrency": 32},
}


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="+", help="a fixed chunk size, adaptive, or adaptive:MS")
    parser.add_argument("--loads", nargs="*", default=list(LOADS), choices=list(LOADS))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quantization", default="auto", choices=["auto", "none", "int8"])
    options, more = parser.parse_known_args()
    common = ("--quantization", options.quantization, *more)
    loads = {load: LOADS[load] for load in options.loads}
    with suites({policy: (*common, *flags(policy)) for policy in options.policies}, first_port=34_000) as servers:
        found = take_turns(servers, loads, figures, rounds=options.rounds, seed=options.seed)
    for load in options.loads:
        print(load)
        for policy in options.policies:
            values = "  ".join(f"{name} {statistics.median(each):8.1f}" for name, each in found[load, policy].items())
            print(f"  {policy:14} {values}", flush=True)


if __name__ == "__main__":
    main()
