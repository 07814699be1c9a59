"""What the gateway's prefix tree costs: time of a match, memory of a block, time of an event.

Builds a fleet's worth of caches (families of prompts that share prefixes) and matches long prompts against it, beside the
cost of hashing the same prompt, which a gateway pays anyway. Usage: python -m benchmarks.prefix_tree [--blocks N]
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from gateway.prefix.tree import PrefixTree
from services.common.prefix_hash import BLOCK_SIZE, block_hashes, root_hash

DEVICE = 1


def resident_bytes() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def build(blocks: int, workers: int, prompt_blocks: int, rng: random.Random) -> tuple[PrefixTree, list[list[int]]]:
    """A tree of about `blocks` distinct blocks; returns it and prompts of `prompt_blocks` that are partly in it."""
    tree = PrefixTree()
    names = [f"10.0.{i // 256}.{i % 256}:30100" for i in range(workers)]
    for name in names:
        tree.cleared(name)
    prompts: list[list[int]] = []
    made = 0
    while made < blocks:
        path = [rng.getrandbits(64) for _ in range(prompt_blocks)]
        made += len(path)
        prompts.append(path)
        for name in rng.sample(names, rng.randrange(1, 9)):
            tree.stored(name, path[: rng.randrange(1, len(path) + 1)], DEVICE)
        for name in names if rng.random() < 0.2 else ():
            tree.stored(name, path[: len(path) // 4], DEVICE)
        tree.stored(rng.choice(names), path, DEVICE)
    return tree, prompts


def best_of(run: Callable[[], object], repeats: int) -> float:
    """Shortest of several runs, in seconds."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)


def measure(blocks: int, workers: int, prompt_tokens: int) -> dict[str, float]:
    """All numbers of the report."""
    rng = random.Random(7)
    gc.collect()
    before = resident_bytes()
    tree, prompts = build(blocks, workers, prompt_tokens // BLOCK_SIZE, rng)
    gc.collect()
    sample = rng.sample(prompts, min(40, len(prompts)))
    cold = [best_of(partial(tree.match, prompt), 1) for prompt in sample]
    warm = [best_of(partial(tree.match, prompt), 5) for prompt in sample]
    keys = sum(len(prompt) for prompt in prompts)
    held_by_prompts = keys * 8
    ids = [rng.randrange(49152) for _ in range(prompt_tokens)]
    root = root_hash("digest")
    new = [rng.getrandbits(64) for _ in range(2000)]
    began = time.perf_counter()
    tree.stored("10.0.0.0:30100", new, DEVICE)
    stored_s = time.perf_counter() - began
    began = time.perf_counter()
    tree.removed("10.0.0.0:30100", new, DEVICE)
    removed_s = time.perf_counter() - began
    entries = len(tree)
    began = time.perf_counter()
    tree.remove_worker("10.0.0.1:30100")
    removal_s = time.perf_counter() - began
    return {
        "workers": workers,
        "blocks": entries,
        "prompt_tokens": prompt_tokens,
        "match_ms_median": 1e3 * median(warm),
        "match_ms_first_touch_median": 1e3 * median(cold),
        "match_ms_worst": 1e3 * max(warm),
        "hash_prompt_ms": 1e3 * best_of(lambda: block_hashes(root, ids), 5),
        "bytes_per_block": (resident_bytes() - before - held_by_prompts) / entries,
        "stored_us_per_block": 1e6 * stored_s / len(new),
        "removed_us_per_block": 1e6 * removed_s / len(new),
        "worker_removal_us": 1e6 * removal_s,
    }


def main() -> None:
    """Print the report as text, or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--blocks", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--prompt-tokens", type=int, default=32_768)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.blocks, options.workers, options.prompt_tokens)
    if options.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:32} {value:,.3f}" if isinstance(value, float) else f"{name:32} {value:,}")
    print(f"{'match / hashing the prompt':32} {found['match_ms_median'] / found['hash_prompt_ms']:.2f}")


if __name__ == "__main__":
    main()
