"""A run as JSON lines, from which every figure can be computed again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headrace.bench.config import BenchConfig
from headrace.bench.measure import Measurement
from headrace.bench.record import Outcome
from headrace.bench.summary import Spread


def store(config: BenchConfig, done: Measurement) -> None:
    """Add the run to the files that were asked for: `output` gets a line per request, `output_file` a line per run."""
    if config.output:
        run = {"kind": "run", **as_json(done, details=False)}
        _append(config.output, [run, *({"kind": "request", "seed": done.about.seed, **_request(o)} for o in done.outcomes)])
    if config.output_file:
        _append(config.output_file, [as_json(done, details=config.output_details)])


def as_json(done: Measurement, *, details: bool) -> dict[str, Any]:
    """Plain values: circumstances, summary (also under the names other tools give it), the server's own account.

    `details` adds a list per measure with a value for every request, in the order of the requests.
    """
    about = asdict(done.about)
    summary = done.summary.as_json()
    value = {"started_unix": done.started_unix, **about, **_common_names(done), "summary": summary, "server_info": done.server}
    return {**value, **_lists(done.outcomes)} if details else value


def _request(o: Outcome) -> dict[str, Any]:
    return {
        "index": o.index,
        "sent": o.sent,
        "ended": o.ended,
        "input_len": o.prompt_tokens,
        "output_len": o.output_tokens,
        "cached_tokens": o.cached_tokens,
        "ttft": o.ttft,
        "itls": o.gaps,
        "finish": o.finish,
        "error": o.error,
        "detail": o.detail,
        "text": o.text,
    }


def _lists(outcomes: Iterable[Outcome]) -> dict[str, list[Any]]:
    names = {"input_len": "input_lens", "output_len": "output_lens", "ttft": "ttfts", "error": "errors", "text": "generated_texts"}
    entries = [_request(outcome) for outcome in outcomes]
    return {names.get(name, name): [entry[name] for entry in entries] for name in (entries[0] if entries else ())}


def _common_names(done: Measurement) -> dict[str, Any]:
    found = done.summary
    flat: dict[str, Any] = {
        "dataset_name": done.about.dataset,
        "request_rate": done.about.rate,
        "max_concurrency": done.about.concurrency_cap,
        "duration": found.duration,
        "completed": found.succeeded,
        "total_input_tokens": found.input_tokens,
        "total_output_tokens": found.output_tokens,
        "request_throughput": found.request_rate,
        "output_throughput": found.output_rate,
        "total_throughput": found.total_rate,
        "concurrency": found.concurrency,
    }
    measures: dict[str, Spread] = {"e2e_latency": found.e2e, "ttft": found.ttft, "tpot": found.tpot, "itl": found.itl}
    for name, values in measures.items():
        for part in ("mean", "median", "p90", "p95", "p99"):
            flat[f"{part}_{name}_ms"] = 1e3 * float(getattr(values, part))
    return flat


def _append(path: str, lines: Iterable[dict[str, Any]]) -> None:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as out:
        out.writelines(json.dumps(line) + "\n" for line in lines)
