"""`headrace report`: each worker's hit rate over its last requests, to compare before and after the policy changes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from headrace.client import Client, ClientError
from services.common.config import load_or_exit, option

_ROW = "{:<28} {:<10} {:>9} {:>14} {:>14} {:>9}"


@dataclass(frozen=True)
class ReportConfig:
    """Which gateway."""

    base_url: str = option("http://127.0.0.1:30000", "REST door of the gateway", group="Server")
    api_key: str = option("", "admin key, sent as bearer token", group="Server", secret=True)


def main(argv: Sequence[str]) -> int:
    """Exit code 0, or 1 if the gateway cannot be asked."""
    config, _ = load_or_exit(ReportConfig, argv, prog="headrace report", description="What routing finds in the workers' caches.")
    try:
        with Client(config.base_url, api_key=config.api_key) as client:
            workers = client.call("GET", "/workers")["workers"]
            settings = client.call("GET", "/server_info")["gateway"]["settings"]
    except ClientError as error:
        print(f"headrace report: {config.base_url}: {error}", file=sys.stderr)
        return 1
    policy = next(row["value"] for row in settings if row["name"] == "policy")
    print("\n".join(lines(policy, workers)))
    return 0


def lines(policy: str, workers: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The report. `workers`: as `GET /workers` lists them; recent tokens fade, a hundred requests back count a third."""
    yield f"policy {policy}; prompt tokens of each worker's last hundred requests or so"
    yield _ROW.format("worker", "state", "in flight", "prompt tokens", "found cached", "hit rate")
    by_model = sorted(workers, key=lambda worker: worker["model"] or "")
    for model, group in groupby(by_model, key=lambda worker: worker["model"] or "(not reached yet)"):
        members = list(group)
        for worker in members:
            yield _line(worker["url"], worker["state"], [worker])
        yield _line(f"all of {model}", "", members)


def _line(name: str, state: str, workers: Sequence[dict[str, Any]]) -> str:
    prompt, cached = (sum(worker["cache"][f"recent_{kind}_tokens"] for worker in workers) for kind in ("prompt", "cached"))
    in_flight = sum(worker["in_flight"] for worker in workers)
    return _ROW.format(name, state, in_flight, f"{prompt:,}", f"{cached:,}", f"{cached / prompt:.1%}" if prompt else "-")
