"""The factory: names, bounded labels, values read at the scrape, and an exposition Prometheus' own parser accepts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from services.common.metric_families import FAMILIES, OTHER, Kind
from services.common.metrics import Metrics


def scrape(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = generate_latest(metrics.registry).decode()
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in text_string_to_metric_families(text) for s in f.samples}


def test_an_unlabelled_counter_starts_at_zero_and_counts() -> None:
    metrics = Metrics("gateway")
    counter = metrics.counter("headrace_slow_clients_total")
    assert scrape(metrics)["headrace_slow_clients_total", ()] == 0
    counter.inc()
    metrics.counter("headrace_slow_clients_total").inc(2)
    assert scrape(metrics)["headrace_slow_clients_total", ()] == 3
    with pytest.raises(ValueError, match="only grows"):
        counter.inc(-1)


def test_fixed_label_values_start_at_zero_and_unknown_ones_become_other() -> None:
    metrics = Metrics("gateway")
    metrics.counter("headrace_resumes_total", outcome="exploded").inc()
    found = {labels: v for (name, labels), v in scrape(metrics).items() if name == "headrace_resumes_total"}
    assert found == {(("outcome", "resumed"),): 0, (("outcome", "failed"),): 0, (("outcome", OTHER),): 1}


def test_open_labels_stop_at_their_limit() -> None:
    metrics = Metrics("gateway")
    for i in range(5000):
        metrics.counter("headrace_http_requests_total", route=f"/x{i}", method=f"M{i}", code=str(i)).inc()
    found = {k: v for k, v in scrape(metrics).items() if k[0] == "headrace_http_requests_total"}
    assert len(found) == 65
    assert sum(found.values()) == 5000


def test_forgetting_a_worker_drops_its_series_and_frees_its_place() -> None:
    metrics = Metrics("gateway")
    for i in range(300):
        metrics.counter("headrace_routed_requests_total", worker=f"w{i}").inc()
        metrics.forget(worker=f"w{i}")
    metrics.counter("headrace_routed_requests_total", worker="last").inc()
    assert [k for k in scrape(metrics) if k[0] == "headrace_routed_requests_total"] == [
        ("headrace_routed_requests_total", (("worker", "last"),))
    ]


def test_a_series_that_was_dropped_is_not_counted_on() -> None:
    metrics = Metrics("gateway")
    metrics.counter("headrace_routed_requests_total", worker="w").inc()
    metrics.forget(worker="w")
    metrics.counter("headrace_routed_requests_total", worker="w").inc()
    assert scrape(metrics)["headrace_routed_requests_total", (("worker", "w"),)] == 1


def test_rows_and_read_take_the_value_of_the_moment() -> None:
    metrics, state = Metrics("gateway"), {"a": 0.0}
    metrics.rows("headrace_breaker_state", lambda: [((name,), value) for name, value in state.items()])
    metrics.gauge("headrace_requests_waiting").read(lambda: len(state))
    state["b"] = 2.0
    found = scrape(metrics)
    assert found["headrace_breaker_state", (("worker", "b"),)] == 2
    assert found["headrace_requests_waiting", ()] == 2
    state.clear()
    found = scrape(metrics)
    assert not [k for k in found if k[0] == "headrace_breaker_state"]
    assert found["headrace_requests_waiting", ()] == 0


def test_histograms_count_weighted_observations_and_take_other_bounds() -> None:
    metrics = Metrics("gateway", buckets={"headrace_inter_token_latency_seconds": (0.1, 1.0)})
    histogram = metrics.histogram("headrace_inter_token_latency_seconds", model_name="m")
    histogram.observe(0.1, 3)
    histogram.observe(5)
    found = {(n, dict(labels).get("le")): v for (n, labels), v in scrape(metrics).items() if n.startswith("headrace_inter")}
    name = "headrace_inter_token_latency_seconds"
    assert found == {
        (f"{name}_bucket", "0.1"): 3,
        (f"{name}_bucket", "1.0"): 3,
        (f"{name}_bucket", "+Inf"): 4,
        (f"{name}_count", None): 4,
        (f"{name}_sum", None): pytest.approx(5.3),
    }


def test_constant_labels_are_on_every_series() -> None:
    metrics = Metrics("scheduler", constant={"model_name": "m"})
    metrics.counter("headrace_worker_steps_total", mode="decode").inc()
    metrics.histogram("headrace_worker_queue_time_seconds").observe(1)
    ours = [labels for (name, labels) in scrape(metrics) if name.startswith("headrace_")]
    assert ours
    assert all(dict(labels)["model_name"] == "m" for labels in ours)


def test_misuse_is_an_error() -> None:
    metrics = Metrics("tokenizer")
    with pytest.raises(KeyError):
        metrics.counter("headrace_invented_total")
    with pytest.raises(KeyError):
        metrics.counter("headrace_tokenizer_rejections_total")
    with pytest.raises(KeyError):
        metrics.counter("headrace_tokenizer_tokens_total", worker="x")
    with pytest.raises(TypeError, match="is a counter"):
        metrics.gauge("headrace_tokenizer_tokens_total")
    with pytest.raises(TypeError, match="is a histogram"):
        metrics.rows("headrace_tokenizer_encode_seconds", list)


@pytest.mark.parametrize("process", FAMILIES)
def test_every_declared_family_is_exported_with_help_and_type(process: str) -> None:
    metrics = Metrics(process)
    ask = {Kind.COUNTER: metrics.counter, Kind.GAUGE: metrics.gauge, Kind.HISTOGRAM: metrics.histogram}
    for family in FAMILIES[process]:
        ask[family.kind](family.name, **{label.name: (label.values or ("x",))[0] for label in family.labels})
    parsed = {f.name: f for f in text_string_to_metric_families(generate_latest(metrics.registry).decode())}
    for family in FAMILIES[process]:
        found = parsed[family.name.removesuffix("_total") if family.kind is Kind.COUNTER else family.name]
        assert (found.type, found.documentation) == (family.kind.value, family.help)


def test_the_tables_follow_the_naming_rules() -> None:
    for families in FAMILIES.values():
        names = [family.name for family in families]
        assert len(names) == len(set(names))
        for family in families:
            assert family.name.startswith("headrace_")
            assert family.help.endswith(".")
            assert not {label.name for label in family.labels} & {"le", "job", "instance", "pod", "quantile"}
            if "seconds" in family.name.split("_")[-1]:
                assert family.kind is not Kind.COUNTER
            assert all(low < high for low, high in pairwise(family.buckets))


def test_only_what_every_process_says_is_in_two_tables() -> None:
    shared = set.intersection(*({f.name for f in families} for families in FAMILIES.values()))
    own = [f.name for families in FAMILIES.values() for f in families if f.name not in shared]
    assert len(own) == len(set(own))


def test_rows_of_known_series_start_at_zero() -> None:
    metrics = Metrics("gateway")
    counted: dict[str, float] = {}
    metrics.rows("headrace_retries_total", lambda: [((why,), count) for why, count in counted.items()])
    assert metrics.registry.get_sample_value("headrace_retries_total", {"reason": "timeout"}) == 0
    counted["timeout"] = 2
    assert metrics.registry.get_sample_value("headrace_retries_total", {"reason": "timeout"}) == 2
    assert metrics.registry.get_sample_value("headrace_retries_total", {"reason": "overloaded"}) == 0
