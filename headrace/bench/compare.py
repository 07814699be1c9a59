"""`headrace bench compare URL_A URL_B`: alternating runs of the same prompts against two servers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.bench.config import BACKENDS, BenchConfig
from headrace.bench.measure import Measurement, measure
from headrace.bench.output import store
from headrace.bench.ratios import ratios, table
from headrace.bench.report import flags_line, headline
from services.common.config import at_least, load_or_exit, option

_USAGE = "usage: headrace bench compare URL_A URL_B [flags]; see headrace bench compare --help"


@dataclass(frozen=True)
class CompareConfig(BenchConfig):
    """How often, and how each side is spoken to."""

    backend: str = option("openai", "door to use on both sides", group="Server", choices=BACKENDS)
    rounds: int = option(3, "pairs of runs", group="Compare", check=at_least(1))
    backend_a: str = option("", "door of A, if another", group="Compare", choices=("", *BACKENDS))
    backend_b: str = option("", "door of B, if another", group="Compare", choices=("", *BACKENDS))
    model_a: str = option("", "model name at A; else the first it lists", group="Compare")
    model_b: str = option("", "model name at B; else the first it lists", group="Compare")
    version_a: str = option("", "version of A, where it does not tell", group="Compare")
    version_b: str = option("", "version of B, where it does not tell", group="Compare")


def main(argv: Sequence[str]) -> int:
    """Exit code 0, 1 if any request failed, 2 for an unusable command line."""
    urls = [word for word in argv[:2] if not word.startswith("-")]
    config, _ = load_or_exit(CompareConfig, argv[len(urls) :], prog="headrace bench compare", description=_USAGE)
    if len(urls) != 2:
        print(_USAGE, file=sys.stderr)
        return 2
    return asyncio.run(compare(config, urls[0], urls[1]))


async def compare(config: CompareConfig, url_a: str, url_b: str) -> int:
    """A B, B A, A B …: prompts are new in every round and equal for both sides."""
    door_a, door_b = config.backend_a or config.backend, config.backend_b or config.backend
    side_a = replace(config, base_url=url_a, backend=door_a, model=config.model_a, server_version=config.version_a)
    side_b = replace(config, base_url=url_b, backend=door_b, model=config.model_b, server_version=config.version_b)
    pairs, failed = [], 0
    for number in range(config.rounds):
        order = (side_a, side_b) if number % 2 == 0 else (side_b, side_a)
        runs: dict[str, Measurement] = {}
        for side in order:
            done = await measure(replace(side, seed=config.seed + number))
            runs["A" if side is side_a else "B"] = done
            failed += done.summary.requests - done.summary.succeeded
            print(f"round {number + 1} {'A' if side is side_a else 'B'}: {headline(done.summary, done.about)}", flush=True)
            store(config, done)
        pairs.append((runs["A"], runs["B"]))
    last_a, last_b = pairs[-1]
    names = [f"{run.about.model}, {run.about.server_version or 'version unknown'}, {run.about.url}" for run in (last_a, last_b)]
    print("\n" + table(ratios([(a.summary, b.summary) for a, b in pairs]), names[0], names[1], len(pairs)))
    print("\n".join(f"{side}: {flags_line(run.about)}" for side, run in (("A", last_a), ("B", last_b))))
    return 1 if failed else 0
