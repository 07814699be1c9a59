"""Dashboards: written by their tables, every query answered by a real Prometheus that scrapes everything we declare."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import start_http_server

from services.common.metric_families import FAMILIES, Kind
from services.common.metrics import Metrics
from tests.helm.promql import unknown_names
from tests.helm.tools import tool
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "helm/files/dashboards").glob("*.json"))
QUERIES = [
    (file.stem, panel["title"], target["expr"])
    for file in FILES
    for panel in json.loads(file.read_text())["panels"]
    for target in panel["targets"]
]


def plain(expression: str) -> str:
    """A query with Grafana's variables filled in."""
    return re.sub(r"\$(namespace|model|instance)", ".*", expression.replace("$__rate_interval", "1m"))


def test_the_files_are_what_the_tables_say() -> None:
    subprocess.run([sys.executable, str(ROOT / "docs/dashboards.py"), "--check"], check=True)
    assert [file.stem for file in FILES] == ["gateway", "overview", "worker"]


@pytest.mark.parametrize(("board", "title", "expression"), QUERIES)
def test_names_and_labels_exist(board: str, title: str, expression: str) -> None:
    assert unknown_names(expression) == []


def everything(process: str) -> Metrics:
    """All families of a process, each with a value."""
    metrics = Metrics(process, constant={"model_name": "m"} if process == "scheduler" else None)
    for family in FAMILIES[process]:
        labels = {label.name: (label.values or ("m",))[0] for label in family.labels}
        if family.kind is Kind.COUNTER:
            metrics.counter(family.name, **labels).inc()
        elif family.kind is Kind.GAUGE:
            metrics.gauge(family.name, **labels).set(1)
        else:
            metrics.histogram(family.name, **labels).observe(0.5)
    return metrics


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a Prometheus that has scraped all four processes at least twice."""
    folder = tmp_path_factory.mktemp("prometheus")
    servers = [start_http_server(0, addr="127.0.0.1", registry=everything(process).registry)[0] for process in FAMILIES]
    targets = [{"targets": [f"127.0.0.1:{server.server_port}"], "labels": {"namespace": "n"}} for server in servers]
    config = folder / "prometheus.yml"
    scrape = {"job_name": "headrace", "scrape_interval": "1s", "static_configs": targets}
    rules = str(ROOT / "helm/files/rules.yaml")
    config.write_text(yaml.safe_dump({"scrape_configs": [scrape], "rule_files": [rules], "global": {"evaluation_interval": "1s"}}))
    port = free_port()
    command = [
        tool("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        address = f"http://127.0.0.1:{port}"
        try:
            wait_for_two_scrapes(address)
            yield address
        finally:
            process.terminate()
            process.communicate()
    for server in servers:
        server.shutdown()


def ask(address: str, query: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}") as response:
        result: list[dict[str, Any]] = json.load(response)["data"]["result"]
    return result


def wait_for_two_scrapes(address: str) -> None:
    for _ in range(600):
        try:
            if len(ask(address, "sum_over_time(up[1m]) >= 2")) == len(FAMILIES):
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError("Prometheus did not scrape")


def test_every_query_has_an_answer(prometheus: str) -> None:
    empty = [(board, title, expr) for board, title, expr in QUERIES if not ask(prometheus, plain(expr))]
    assert not empty, "\n".join(map(str, empty))


def test_the_rules_load_and_run(prometheus: str) -> None:
    with urllib.request.urlopen(f"{prometheus}/api/v1/rules") as response:
        groups = json.load(response)["data"]["groups"]
    assert {rule["health"] for group in groups for rule in group["rules"]} <= {"ok", "unknown"}
    assert sum(len(group["rules"]) for group in groups) > 25
