"""What the operators' pages name exists: metrics, commands, targets, settings of the chart and of the programs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.cli import COMMANDS
from headrace.programs import program
from services.common.config import options_of
from services.common.metric_families import FAMILIES
from tests.helm.chart import CHART

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs/operations.md", ROOT / "docs/failure-handbook.md"]
EXPORTED = {family.name for families in FAMILIES.values() for family in families}
GROUPS = yaml.safe_load((CHART / "files/rules.yaml").read_text())["groups"]
RECORDED = {rule["record"] for group in GROUPS for rule in group["rules"] if "record" in rule}
SETTINGS = {name for process in ("gateway", "scheduler", "tokenizer", "detokenizer") for name in options_of(program(process).config())}
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
# Names in backticks that are fields of answers, requests or Kubernetes, not settings.
OTHERS = {
    "max_tokens", "request_id", "model_digest", "batch_invariant", "cache_salt", "extra_key", "deadline_exceeded", "client_disconnect",
    "grafana_dashboard",
}  # fmt: skip


def words(page: Path) -> list[str]:
    """Everything in backticks outside of code blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL))


def commands(page: Path) -> list[str]:
    """Lines of the shell blocks, without comments."""
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(), flags=re.DOTALL)
    return [line.split("  #")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_metrics_exist(page: Path) -> None:
    named = set(re.findall(r"\bheadrace(?:_[a-z0-9]+)+", page.read_text()))
    assert named, "no page without a metric"
    assert named <= EXPORTED, named - EXPORTED
    recorded = set(re.findall(r"\bheadrace:[a-z_]+:[a-z0-9_]+", page.read_text()))
    assert recorded <= RECORDED


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_settings_exist(page: Path) -> None:
    for word in words(page):
        if re.fullmatch(r"[a-z]+(_[a-z]+)+", word) and not word.startswith(("process_", "headrace_")):
            assert word in SETTINGS | OTHERS, word


def _lookup(path: str) -> bool:
    """Is it a value of the chart? Keys of `defaults` may be set for every component."""
    first, *rest = path.split(".")
    roots = [VALUES, VALUES["defaults"], VALUES["worker"]]
    for root in roots:
        node: Any = root.get(first)
        for key in rest:
            node = {**VALUES["defaults"], **node}.get(key) if isinstance(node, dict) else None
        if node is not None or (not rest and first in root):
            return True
    return "config" in (first, *rest[:1])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_values_of_the_chart_exist(page: Path) -> None:
    for word in words(page):
        if re.fullmatch(r"[a-z][A-Za-z]+(\.[a-z][A-Za-z_]+)+", word) and not word.endswith((".yaml", ".md", ".crt")):
            assert _lookup(word), word


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for line in commands(page) + words(page):
        parts = line.split()
        if parts[0] == "make":
            assert parts[1] in targets, line
        elif parts[0] == "headrace" and len(parts) > 1:
            assert parts[1] in COMMANDS, line


def test_the_sizing_commands_print_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    from headrace.commands.capacity import main

    [line] = [line for line in commands(PAGES[0]) if line.startswith("headrace capacity --layers")]
    assert main(shlex.split(line)[2:]) in (0, 1)
    assert "verdict" in capsys.readouterr().out
