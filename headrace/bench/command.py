"""`headrace bench serve|sweep|compare`."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Sequence

from headrace.bench.config import BenchConfig
from headrace.bench.measure import Measurement, measure
from headrace.bench.output import store
from headrace.bench.report import render, short
from headrace.models.progress import Meter
from services.common.config import ConfigError, load_or_exit

_USAGE = """usage: headrace bench serve [flags]     load a server and report every figure
       headrace bench sweep [flags]     the same at several concurrencies: where is the knee?
       headrace bench compare A B       two servers in alternating runs: ratios with their spread

Each takes --help."""


def main(argv: Sequence[str]) -> int:
    """Exit code 0, 1 if any request failed, 2 for an unusable command line."""
    if not argv or argv[0] in ("-h", "--help"):
        print(_USAGE)
        return 0 if argv else 2
    try:
        if argv[0] == "serve":
            return serve(argv[1:])
        if argv[0] in ("sweep", "compare"):
            code: int = importlib.import_module(f"headrace.bench.{argv[0]}").main(argv[1:])
            return code
    except ConfigError as error:
        print(f"headrace bench {argv[0]}: {error}", file=sys.stderr)
        return 2
    print(_USAGE, file=sys.stderr)
    return 2


def serve(argv: Sequence[str]) -> int:
    """One run."""
    config, _ = load_or_exit(BenchConfig, argv, prog="headrace bench serve", description="Load a server and report every figure.")
    meter = Meter(lambda line: print(line, file=sys.stderr, flush=True), "bench", "requests")
    done = asyncio.run(measure(config) if config.quiet else measure(config, meter.at))
    print(short(done.summary, done.about) if config.quiet else render(done.summary, done.about))
    store(config, done)
    return complain(done)


def complain(done: Measurement) -> int:
    """Say what failed; 1 if anything did."""
    failed = [outcome for outcome in done.outcomes if not outcome.ok]
    if not failed:
        return 0
    share = "every request" if len(failed) == len(done.outcomes) else f"{len(failed)} of {len(done.outcomes)} requests"
    print(f"warning: {share} failed; the first: {failed[0].error}: {failed[0].detail}", file=sys.stderr)
    return 1
