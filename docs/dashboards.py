"""Writes the chart's Grafana dashboards from the tables below: `python docs/dashboards.py`; with --check it only compares."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from docs.written import write_or_check  # noqa: E402

FOLDER = ROOT / "helm/files/dashboards"
_WIDTH, _HEIGHT, _COLUMNS = 8, 7, 3


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture. `queries`: (expression, legend). `unit` is Grafana's name of one."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    help: str = ""


def one(title: str, unit: str, expression: str, legend: str = "", help: str = "") -> Panel:
    """A panel with one query."""
    return Panel(title, unit, ((expression, legend),), help)


def percentiles(title: str, histogram: str, by: str = "model_name", where: str = "$m", help: str = "") -> Panel:
    """Median, p90 and p99 of a histogram."""
    shown = f"sum by ({by}, le) (rate({histogram}_bucket{{{where}}}[$r]))"
    queries = ((f"histogram_quantile({q / 100}, {shown})", f"{{{{{by}}}}} p{q}") for q in (50, 90, 99))
    return Panel(title, "s", tuple(queries), help)


def per_second(title: str, counter: str, by: str, where: str = "$n", unit: str = "short") -> Panel:
    """The rate of a counter by some labels."""
    legend = " ".join(f"{{{{{label}}}}}" for label in by.split(", "))
    return one(title, unit, f"sum by ({by}) (rate({counter}{{{where}}}[$r]))", legend)


# $n, $m and $i stand for the matchers of a namespace, a model in it, and an instance; $r for the window of a rate.
OVERVIEW = (
    per_second("Requests per second by outcome", "headrace_requests_total", "outcome", "$m", unit="reqps"),
    per_second("Output tokens per second", "headrace_generation_tokens_total", "model_name", "$m"),
    one("Requests in flight", "short", "sum by (model_name) (headrace_requests_in_flight{$m})", "{{model_name}}"),
    percentiles("Time to first token", "headrace_time_to_first_token_seconds"),
    percentiles("Gap between tokens", "headrace_inter_token_latency_seconds"),
    percentiles("Whole request", "headrace_e2e_request_latency_seconds"),
    Panel(
        "Prompt tokens per second by source", "short",
        (("sum by (source) (rate(headrace_worker_prefill_tokens_total{$m}[$r]))", "{{source}}"),),
    ),
    one(
        "Prefix cache hit rate", "percentunit",
        'sum by (model_name) (rate(headrace_worker_prefill_tokens_total{source=~".*_hit",$m}[5m])) '
        "/ sum by (model_name) (rate(headrace_worker_prefill_tokens_total{$m}[5m]))",
        "{{model_name}}", "From counters over five minutes.",
    ),
    one("Workers by state", "short", "max by (model_name, state) (headrace_workers{$m})", "{{model_name}} {{state}}"),
    one("Waiting at workers", "short", "sum by (instance) (headrace_worker_waiting_requests{$m})", "{{instance}}"),
    one("KV pool in use", "percentunit", "max by (instance) (headrace_worker_kv_usage_ratio{$m})", "{{instance}}"),
    Panel(
        "Retries, resumes, retractions per second", "short",
        (
            ("sum (rate(headrace_retries_total{$n}[$r]))", "retries"),
            ("sum by (outcome) (rate(headrace_resumes_total{$n}[$r]))", "{{outcome}}"),
            ("sum (rate(headrace_worker_retractions_total{$n}[$r]))", "retractions"),
        ),
    ),
)  # fmt: skip

GATEWAY = (
    percentiles("Time in each stage", "headrace_request_stage_seconds", "stage", "$n"),
    per_second("HTTP answers per second", "headrace_http_requests_total", "route, code", unit="reqps"),
    one("Admission queue", "short", "sum by (instance) (headrace_requests_waiting{$i})", "{{instance}}"),
    per_second("Routing decisions per second", "headrace_routing_decisions_total", "policy, reason"),
    per_second("Attempts per second by worker", "headrace_routed_requests_total", "worker", unit="reqps"),
    Panel(
        "Cached tokens: predicted and found, per second", "short",
        (
            ("sum (rate(headrace_routing_predicted_cached_tokens_total{$n}[$r]))", "predicted"),
            ("sum (rate(headrace_routing_found_cached_tokens_total{$n}[$r]))", "found"),
        ),
    ),
    one("Breakers (0 closed, 1 half-open, 2 open)", "short", "max by (worker) (headrace_breaker_state{$n})", "{{worker}}"),
    per_second("Retries per second by reason", "headrace_retries_total", "reason"),
    one("Retry budget left", "percentunit", "min by (instance) (headrace_retry_budget_remaining_ratio{$i})", "{{instance}}"),
    per_second("Refused by limit, per second", "headrace_admission_rejections_total", "limit", unit="reqps"),
    per_second("Aborts per second by cause", "headrace_aborted_requests_total", "cause"),
    one("Slow clients cut off, per second", "short", "sum (rate(headrace_slow_clients_total{$n}[$r]))", "clients"),
    per_second("Cache events per second", "headrace_cache_events_total", "kind"),
    per_second("Gaps in cache events, per second", "headrace_cache_event_gaps_total", "worker"),
    one("Blocks known of each worker", "short", "max by (worker) (headrace_prefix_blocks{$n})", "{{worker}}"),
    one("Links", "short", "sum by (instance, service) (headrace_links{$i})", "{{instance}} {{service}}"),
    percentiles("Event loop lag", "headrace_event_loop_lag_seconds", "instance", "$i"),
    per_second("CPU seconds per second", "process_cpu_seconds_total", "instance", "$i"),
)  # fmt: skip

WORKER = (
    Panel(
        "Choices", "short",
        (
            ("sum by (instance) (headrace_worker_running_requests{$m})", "{{instance}} running"),
            ("sum by (instance) (headrace_worker_waiting_requests{$m})", "{{instance}} waiting"),
            ("sum by (instance) (headrace_worker_grammar_waiting_requests{$m})", "{{instance}} grammar"),
        ),
    ),
    percentiles("Queue time", "headrace_worker_queue_time_seconds"),
    percentiles("Prefill time", "headrace_worker_prefill_time_seconds"),
    percentiles("Step time", "headrace_worker_step_seconds", "mode"),
    one(
        "Rows per step, mean", "short",
        "sum by (mode) (rate(headrace_worker_step_rows_sum{$m}[$r])) "
        "/ sum by (mode) (rate(headrace_worker_step_rows_count{$m}[$r]))",
        "{{mode}}",
    ),
    per_second("Steps per second", "headrace_worker_steps_total", "mode", "$m"),
    Panel(
        "KV pool", "short",
        tuple((f"sum by (instance) (headrace_worker_kv_{k}_tokens{{$m}})", "{{instance}} " + k) for k in ("used", "evictable", "free")),
    ),
    per_second("Output tokens per second", "headrace_worker_generation_tokens_total", "instance", "$m"),
    per_second("Evicted tokens per second", "headrace_worker_evicted_tokens_total", "instance", "$m"),
    Panel(
        "Work done twice, tokens per second", "short",
        (
            ("sum by (instance) (rate(headrace_worker_recomputed_tokens_total{$m}[$r]))", "{{instance}} recomputed"),
            ("sum by (instance) (rate(headrace_worker_retracted_tokens_total{$m}[$r]))", "{{instance}} given up"),
        ),
    ),
    one("New-token ratio", "percentunit", "max by (instance) (headrace_worker_new_token_ratio{$m})", "{{instance}}"),
    per_second("Refused by limit, per second", "headrace_worker_rejections_total", "limit", "$m"),
    one("Age of the last turn", "s", "max by (instance) (headrace_worker_last_turn_age_seconds{$m})", "{{instance}}"),
    per_second("Choices per second by end", "headrace_worker_choices_total", "reason", "$m"),
    one("Resident memory", "bytes", "max by (instance) (process_resident_memory_bytes{$i})", "{{instance}}"),
)  # fmt: skip

DASHBOARDS = {"overview": OVERVIEW, "gateway": GATEWAY, "worker": WORKER}
MATCHERS = {
    "$n": 'namespace=~"$namespace"',
    "$m": 'namespace=~"$namespace",model_name=~"$model"',
    "$i": 'namespace=~"$namespace",instance=~"$instance"',
}


def _expanded(expression: str) -> str:
    expression = expression.replace("[$r]", "[$__rate_interval]")
    for short, matcher in MATCHERS.items():
        expression = expression.replace("{" + short, "{" + matcher).replace("," + short, "," + matcher)
    return expression


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name, "type": "query", "datasource": {"type": "prometheus", "uid": "$datasource"}, "query": query, "refresh": 2,
        "multi": True, "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}, "sort": 1,
    }  # fmt: skip


def _panel(panel: Panel, number: int) -> dict[str, Any]:
    where = {"w": _WIDTH, "h": _HEIGHT, "x": number % _COLUMNS * _WIDTH, "y": number // _COLUMNS * _HEIGHT}
    source = {"type": "prometheus", "uid": "$datasource"}
    return {
        "id": number + 1, "title": panel.title, "type": "timeseries", "description": panel.help, "gridPos": where, "datasource": source,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": {"fillOpacity": 8, "showPoints": "never"}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": [
            {"refId": chr(ord("A") + i), "expr": _expanded(expression), "legendFormat": legend, "datasource": source}
            for i, (expression, legend) in enumerate(panel.queries)
        ],
    }  # fmt: skip


def dashboard(name: str) -> dict[str, Any]:
    """A dashboard as Grafana imports it."""
    model = "headrace_worker_kv_capacity_tokens" if name == "worker" else "headrace_requests_in_flight"
    owner = "headrace_worker_kv_capacity_tokens" if name == "worker" else "headrace_requests_waiting"
    return {
        "uid": f"headrace-{name}", "title": f"Headrace: {name}", "tags": ["headrace"], "schemaVersion": 39, "version": 1, "editable": True,
        "time": {"from": "now-1h", "to": "now"}, "refresh": "30s", "timezone": "browser",
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "current": {}, "refresh": 1},
                _variable("namespace", "label_values(headrace_build_info, namespace)"),
                _variable("model", f'label_values({model}{{namespace=~"$namespace"}}, model_name)'),
                _variable("instance", f'label_values({owner}{{namespace=~"$namespace"}}, instance)'),
            ]
        },
        "panels": [_panel(panel, i) for i, panel in enumerate(DASHBOARDS[name])],
    }  # fmt: skip


def main(argv: list[str]) -> int:
    """Write the dashboards, or with --check name those that differ and return 1."""
    return write_or_check({FOLDER / f"{name}.json": json.dumps(dashboard(name), indent=1) + "\n" for name in DASHBOARDS}, argv)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
