"""`headrace bench sweep`: the same load at rising concurrency, and where it stops paying."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.bench.chart import as_png, as_text
from headrace.bench.command import complain
from headrace.bench.config import BenchConfig
from headrace.bench.goodput import parse_targets
from headrace.bench.knee import Level, knee, within
from headrace.bench.measure import Measurement, measure
from headrace.bench.output import store
from headrace.bench.report import flags_line, headline
from services.common.config import at_least, load_or_exit, option


@dataclass(frozen=True)
class SweepConfig(BenchConfig):
    """Which caps, and what counts as a rise."""

    levels: tuple[int, ...] = option((1, 2, 4, 8, 16, 32), "concurrency caps, rising", group="Sweep")
    prompts_per_slot: int = option(4, "requests per level for each unit of its cap", group="Sweep", check=at_least(1))
    least_prompts: int = option(8, "fewest requests of a level", group="Sweep", check=at_least(1))
    knee_gain: float = option(0.05, "rise in throughput that does not count", group="Sweep", check=at_least(0))
    png: str = option("sweep.png", "file to draw into; empty for none", group="Sweep")


def main(argv: Sequence[str]) -> int:
    """Exit code 0, 1 if any request failed."""
    config, _ = load_or_exit(SweepConfig, argv, prog="headrace bench sweep", description="Find the knee over concurrency levels.")
    return asyncio.run(sweep(config))


async def sweep(config: SweepConfig) -> int:
    """Measure all levels; prints table, knee and drawing."""
    done = []
    for number, cap in enumerate(sorted(config.levels)):
        prompts = max(config.least_prompts, config.prompts_per_slot * cap)
        level = replace(config, max_concurrency=cap, num_prompts=prompts, seed=config.seed + number)  # new prompts for each
        done.append(await measure(level))
        print(headline(done[-1].summary, done[-1].about), flush=True)
        store(config, done[-1])
    levels = [level_of(run) for run in done]
    at = knee(levels, config.knee_gain)
    print("\n" + as_text(levels, at))
    print(f"\nknee: a cap of {at.cap} gives {at.output_rate:.1f} output tok/s; beyond it the rise is below {config.knee_gain:.0%}")
    print(flags_line(done[0].about))
    targets = parse_targets(config.goodput)
    if targets:
        best = within(levels, targets.get("ttft"), targets.get("tpot"))
        wanted = " ".join(config.goodput)
        print(f"highest cap whose p99 meets {wanted} ms: {best.cap if best else 'none'}")
    if config.png:
        about = done[0].about
        sent = done[0].summary
        lengths = f"mean {sent.input_lengths.mean:.0f} tokens in, {sent.output_lengths.mean:.0f} out"
        title = f"{about.model} on {about.server_version or 'unknown version'}, {about.dataset}: {lengths}, {about.backend}"
        as_png(levels, at, title, Path(config.png))
        print(f"drawn: {config.png}")
    return max(complain(run) for run in done)


def level_of(run: Measurement) -> Level:
    """The point a run gives in the sweep."""
    found = run.summary
    return Level(
        cap=run.config.max_concurrency or 0,
        output_rate=found.output_rate,
        ttft_median=found.ttft.median,
        ttft_p99=found.ttft.p99,
        tpot_median=found.tpot.median,
        tpot_p99=found.tpot.p99,
        itl_max=found.itl.max,
        failed=found.requests - found.succeeded,
    )
