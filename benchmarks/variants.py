"""The whole suite with different flags, side by side: one suite is awake at a time, all answer the same prompts."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
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

Loads = Mapping[str, Mapping[str, Any]]
"""Settings of the load generator by the load's name."""
Found = dict[tuple[str, str], dict[str, list[float]]]
"""Values of each figure, one a round, by (load, variant)."""


@contextmanager
def suites(variants: Mapping[str, Sequence[str]], *, first_port: int) -> Iterator[dict[str, Server]]:
    """A paused suite for each variant, started with its flags; they end with the block."""
    model = ModelStore(cache_dir()).ensure(CATALOG[0], print)
    with ExitStack() as stack, TemporaryDirectory() as logs:
        servers: dict[str, Server] = {}
        for number, (name, flags) in enumerate(variants.items()):
            recipe = headrace(name, model, first_port + 2000 * number, *flags, pool_tokens=65_536, token_bytes=0)
            servers[name] = Server(recipe, Path(logs) / f"{number}.log")
            stack.callback(servers[name].stop)
            servers[name].wait()
            servers[name].pause()
        yield servers


def take_turns(
    servers: Mapping[str, Server], loads: Loads, figures: Callable[[Summary], dict[str, float]], *, rounds: int, seed: int
) -> Found:
    """Every server once a round for each load, in an order that rotates; prompts are new in each round."""
    found: Found = defaultdict(lambda: defaultdict(list))
    for number in range(rounds):
        names = list(servers)
        turn = number % len(names)
        for load, settings in loads.items():
            for name in (*names[turn:], *names[:turn]):
                servers[name].resume()
                config = BenchConfig(backend="openai", base_url=servers[name].url, model=MODEL_NAME, seed=seed + number, **settings)
                done = asyncio.run(measure(config))
                servers[name].pause()
                for figure, value in figures(done.summary).items():
                    found[load, name][figure].append(value)
    return found
