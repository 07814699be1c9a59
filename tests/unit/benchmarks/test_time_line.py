"""The time line of a request: metrics read right, and pieces that add up to what the client saw."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest

from benchmarks.time_line import of_a_token, parse, per_request, to_first_token
from headrace.bench.summary import Spread, Summary, summarize

PAGE = """# HELP headrace_request_stage_seconds x
headrace_request_stage_seconds_bucket{stage="route",le="0.1"} 3.0
headrace_request_stage_seconds_sum{stage="route"} 0.004
headrace_request_stage_seconds_count{stage="route"} 2.0
headrace_worker_queue_time_seconds_sum 1.5e-03
headrace_requests_total{route="/x"} 9
"""


def test_sums_and_counts_by_name_and_label() -> None:
    assert parse(PAGE) == [
        ("request_stage route", "sum", 0.004),
        ("request_stage route", "count", 2.0),
        ("worker_queue_time", "sum", 0.0015),
    ]


def test_growth_is_per_request_in_milliseconds() -> None:
    spent = per_request({"a": (1.0, 5)}, {"a": (1.5, 9), "b": (0.2, 1)}, 10)
    assert [spent["a"], spent["b"], spent["never seen"]] == pytest.approx([50, 20, 0])


def seen() -> Summary:
    return replace(summarize([]), ttft=Spread(mean=0.1), tpot=Spread(mean=0.005), output_tokens=50, requests=10)


def test_pieces_add_up() -> None:
    spent = defaultdict(float, {f"request_stage {name}": 1.0 for name in ("tokenize", "admission", "route", "accept")})
    spent |= {"request_stage first_token": 80.0, "time_to_first_token": 95.0, "worker_time_to_first_token": 78.0}
    lines = to_first_token(spent, seen())
    whole = lines[0].ms
    assert whole == pytest.approx(100)
    assert sum(line.ms for line in lines if line.depth == 1) == pytest.approx(whole)
    assert sum(line.ms for line in lines if line.depth == 2) == pytest.approx(95)
    assert next(line.ms for line in lines if line.name == "between gateway and worker") == pytest.approx(3.0)


def test_a_token_is_a_step_and_what_lies_between_steps() -> None:
    lines = of_a_token(defaultdict(float, {"worker_step decode": 16.0}), seen())
    assert [line.ms for line in lines[:3]] == pytest.approx([5.0, 4.0, 1.0])
