"""Dashboards: written by their tables, every query answered by a real Prometheus that scrapes everything we declare."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import start_http_server

from services.common.metric_families import FAMILIES, Kind
from services.common.metrics import Metrics
from tests.helm.prometheus import Prometheus, prometheus
from tests.helm.promql import unknown_names
from tests.helm.tools import needs

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
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has scraped all four processes at least twice."""
    servers = [start_http_server(0, addr="127.0.0.1", registry=everything(process).registry)[0] for process in FAMILIES]
    targets = [f"127.0.0.1:{server.server_port}" for server in servers]
    with prometheus(tmp_path_factory.mktemp("prometheus"), targets) as running:
        yield running
    for server in servers:
        server.shutdown()


@needs("prometheus")
def test_every_query_has_an_answer(answers: Prometheus) -> None:
    empty = [(board, title, expr) for board, title, expr in QUERIES if not answers.ask(plain(expr))]
    assert not empty, "\n".join(map(str, empty))


@needs("prometheus")
def test_the_rules_load_and_run(answers: Prometheus) -> None:
    rules = answers.rules()
    assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
    assert len(rules) > 25
