"""Alert rules: every name exists, no bare gauge, and each alert fires on its fault and stays silent otherwise."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.common.metric_families import FAMILIES, Kind
from tests.helm.promql import unknown_names
from tests.helm.rule_cases import CASES, Series
from tests.helm.tools import needs, tool

ROOT = Path(__file__).parents[2]
RULES = ROOT / "helm/files/rules.yaml"
GROUPS = yaml.safe_load(RULES.read_text())["groups"]
ALERTS: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in GROUPS for rule in group["rules"] if "alert" in rule}
RECORDED = {rule["record"]: rule["expr"] for group in GROUPS for rule in group["rules"] if "record" in rule}


def test_every_name_and_label_in_the_rules_is_one_we_export() -> None:
    for expression in [*RECORDED.values(), *(rule["expr"] for rule in ALERTS.values())]:
        assert unknown_names(expression, RECORDED) == []


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_lasts_and_says_what_to_do(name: str) -> None:
    rule = ALERTS[name]
    assert rule["for"] not in ("", "0s", "0m")
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert set(rule["annotations"]) == {"summary", "action"}
    assert f"### {name}\n" in (ROOT / "docs/failure-handbook.md").read_text()


def test_counters_are_read_through_rates() -> None:
    counters = {f.name for families in FAMILIES.values() for f in families if f.kind is Kind.COUNTER}
    for rule in ALERTS.values():
        for counter in counters:
            for found in re.finditer(rf"{counter}\b", rule["expr"]):
                assert re.search(r"(rate|increase)\($", rule["expr"][: found.start()]), rule["alert"]


def test_every_alert_has_a_case() -> None:
    assert set(CASES) == set(ALERTS)


def _check(series: Series, minutes: int, alert: str, fires: bool) -> dict[str, Any]:
    expected: dict[str, Any] = {"eval_time": f"{minutes}m", "alertname": alert}
    query = {
        "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)',
        "eval_time": f"{minutes}m",
        "exp_samples": [{"labels": "{}", "value": int(fires)}],
    }
    if not fires:
        expected["exp_alerts"] = []
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [query],
        **({} if fires else {"alert_rule_test": [expected]}),
    }


@needs("promtool")
def test_alerts_fire_on_faults_only(tmp_path: Path) -> None:
    tests = []
    for alert, case in CASES.items():
        tests += [_check(case.bad, case.minutes, alert, True), _check(case.good, case.minutes, alert, False)]
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}, sort_keys=False))
    done = subprocess.run([tool("promtool"), "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    subprocess.run([tool("promtool"), "check", "rules", str(RULES)], check=True, capture_output=True)
