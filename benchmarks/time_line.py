"""Where a request's time goes when it is alone: `python -m benchmarks.time_line [--port 30000]`.

Sends requests one after the other through the REST door and reads every process's metrics before and after. What the
pieces leave over is printed as the way between them. Without --port it starts a suite of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.peers.servers import Server, headrace
from headrace.bench.config import BenchConfig
from headrace.bench.measure import measure
from headrace.bench.summary import Summary
from headrace.launcher.http import call
from headrace.models.catalog import CATALOG
from headrace.models.store import ModelStore
from services.common.config import cache_dir

_PORT = 29000
_METRICS = {"gateway": 1000, "tokenizer": 1010, "detokenizer": 1020, "worker": 1100}  # metrics port minus REST port
_SAMPLE = re.compile(r"^(headrace_\w+)_(sum|count)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Line:
    """A piece of a request's life: depth in the tree, name, milliseconds per request."""

    depth: int
    name: str
    ms: float


def main(argv: Sequence[str] | None = None) -> int:
    """Print both time lines: to the first token, and of a token after it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, help="REST port of a running suite with its metrics ports at the usual distance")
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--input-len", type=int, default=512)
    parser.add_argument("--output-len", type=int, default=64)
    parser.add_argument("--text", action="store_true", help="send text instead of token ids")
    parser.add_argument("--quantization", default="int8", help="of the suite that is started here")
    options = parser.parse_args(argv)
    with ExitStack() as stack:
        if options.port is None:
            _start(stack, options.quantization)
        port = options.port or _PORT
        config = _config(port, options)
        asyncio.run(measure(config))  # connections, caches and clocks of the processors get warm
        before = histograms(port)
        seen = asyncio.run(measure(replace(config, seed=config.seed + 1, warmup_requests=0))).summary
        spent = per_request(before, histograms(port), options.requests)
    for line in [*to_first_token(spent, seen), *of_a_token(spent, seen)]:
        print(f"{'  ' * line.depth + line.name:58} {line.ms:9.2f} ms")
    return 0


def to_first_token(spent: Mapping[str, float], seen: Summary) -> list[Line]:
    """From sending to the first chunk. `spent`: milliseconds per request by metric and label."""
    client = 1e3 * seen.ttft.mean
    gateway = spent["time_to_first_token"]
    stages = {name: spent[f"request_stage {name}"] for name in ("tokenize", "admission", "route", "accept", "first_token")}
    inside = spent["worker_time_to_first_token"]
    return [
        Line(0, "client: sent to first chunk", client),
        Line(1, "client, HTTP and JSON outside the gateway's clock", client - gateway),
        Line(1, "gateway: arrival to first text leaving", gateway),
        *(Line(2, f"{name}", stages[name]) for name in ("tokenize", "admission", "route")),
        Line(3, "of tokenize: encoding", spent["tokenizer_encode"]),
        Line(2, "accept and first token", stages["accept"] + stages["first_token"]),
        Line(3, "(of all until the worker has accepted)", stages["accept"]),
        Line(3, "worker: waiting", spent["worker_queue_time"]),
        Line(3, "worker: first run to first token", spent["worker_prefill_time"]),
        Line(4, "of it in steps that prefill", spent["worker_step prefill"] + spent["worker_step mixed"]),
        Line(3, "worker: token counted, not yet sent", inside - spent["worker_queue_time"] - spent["worker_prefill_time"]),
        Line(3, "between gateway and worker", stages["accept"] + stages["first_token"] - inside),
        Line(2, "detokenize, write and what has no name", gateway - sum(stages.values())),
    ]


def of_a_token(spent: Mapping[str, float], seen: Summary) -> list[Line]:
    """One token after the first; all that a step's tokens cost elsewhere overlaps with the next step."""
    tokens = max(seen.output_tokens / seen.requests - 1, 1)
    step, tpot = spent["worker_step decode"] / tokens, 1e3 * seen.tpot.mean
    return [
        Line(0, "client: each token after the first", tpot),
        Line(1, "worker: step, launch to result", step),
        Line(1, "between two steps", tpot - step),
        Line(0, "detokenizer, per frame of tokens", spent["detokenizer_frame"] / (tokens + 1)),
    ]


Sums = dict[str, tuple[float, float]]  # "name label" → (sum of seconds, count)


def histograms(port: int) -> Sums:
    """Every histogram of every process."""
    found: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for program, offset in _METRICS.items():
        answer = call("127.0.0.1", port + offset, "GET", "/metrics")
        if answer.status != 200:
            raise RuntimeError(f"{program} has no metrics on port {port + offset}: {answer.status} {answer.body[:200]}")
        for key, part, value in parse(answer.body):
            found[key][part == "count"] += value
    return {key: (total, count) for key, (total, count) in found.items()}


def parse(text: str) -> list[tuple[str, str, float]]:
    """("name stage-or-mode", sum or count, value) of a page of metrics, without the common prefix and the unit."""
    samples = []
    for name, part, labels, value in _SAMPLE.findall(text):
        kind = re.search(r'(?:stage|mode)="(\w+)"', labels)
        short = name.removeprefix("headrace_").removesuffix("_seconds")
        samples.append((f"{short} {kind.group(1)}" if kind else short, part, float(value)))
    return samples


def per_request(before: Sums, after: Sums, requests: int) -> defaultdict[str, float]:
    """Milliseconds that each histogram grew by, for each request."""
    return defaultdict(float, {key: 1e3 * (total - before.get(key, (0.0, 0.0))[0]) / requests for key, (total, _) in after.items()})


def _config(port: int, options: argparse.Namespace) -> BenchConfig:
    return BenchConfig(
        backend="openai-chat" if options.text else "openai",
        base_url=f"http://127.0.0.1:{port}",
        tokenizer=str(ModelStore(cache_dir()).ensure(CATALOG[0], print)) if options.text else "",
        max_concurrency=1,
        num_prompts=options.requests,
        random_input_len=options.input_len,
        random_output_len=options.output_len,
        seed=int.from_bytes(os.urandom(3), "big"),
    )


def _start(stack: ExitStack, quantization: str) -> None:
    model = ModelStore(cache_dir()).ensure(CATALOG[0], print)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    recipe = headrace("suite", model, _PORT, "--quantization", quantization, pool_tokens=32_768, token_bytes=0)
    server = Server(recipe, folder / "suite.log")
    stack.callback(server.stop)
    server.wait()


if __name__ == "__main__":
    raise SystemExit(main())
