"""Every figure of the report, on timings whose answers are known."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.bench.arrivals import schedule
from headrace.bench.goodput import meets, parse_targets
from headrace.bench.record import BenchRequest, Outcome
from headrace.bench.report import Circumstances, headline, render
from headrace.bench.summary import busiest_window, peak_concurrency, spread, summarize
from services.common.config import ConfigError


def outcome(sent: float, events: list[float], ended: float, tokens: int, **more: object) -> Outcome:
    made = Outcome(0, 512, tokens, sent=sent, ended=ended, events=array("d", events), prompt_tokens=512, output_tokens=tokens)
    for name, value in more.items():
        setattr(made, name, value)
    return made


ABOUT = Circumstances(
    backend="openai",
    url="http://127.0.0.1:1",
    model="m",
    server_version="9.9",
    client_version="headrace 0",
    dataset="random",
    rate="inf",
    concurrency_cap=8,
    seed=7,
    flags="none",
    targets={},
    own_cpu_us_per_token=5.0,
    own_cpu_share=0.1,
)


def test_one_request() -> None:
    one = outcome(1.0, [1.5, 1.6, 1.9], 1.9, 4)
    assert one.ttft == pytest.approx(0.5)
    assert one.latency == pytest.approx(0.9)
    assert one.tpot == pytest.approx(0.4 / 3)  # four tokens, the first excluded; a chunk of two is one gap
    assert one.gaps == pytest.approx([0.1, 0.3])


def test_totals_and_rates() -> None:
    runs = [outcome(0.0, [0.5, 1.0], 1.0, 2), outcome(0.0, [0.5, 2.0], 2.0, 2), outcome(1.0, [], 1.2, 0, error="HTTP 429")]
    found = summarize(runs)
    assert (found.requests, found.succeeded, found.failures) == (3, 2, {"HTTP 429": 1})
    assert (found.input_tokens, found.output_tokens, found.streamed_chunks) == (1024, 4, 4)
    assert found.duration == pytest.approx(2.0)
    assert found.request_rate == pytest.approx(1.0)
    assert found.output_rate == pytest.approx(2.0)
    assert found.total_rate == pytest.approx(514.0)
    assert found.concurrency == pytest.approx(1.5)  # sum of latencies over duration
    assert found.peak_concurrency == 2  # of three that overlap: one had ended before the failed one began
    assert summarize([*runs, outcome(0.9, [], 1.1, 0, error="timeout")]).peak_concurrency == 3  # a failed one was in flight too


def test_two_requests_one_after_the_other_within_a_second() -> None:
    runs = [outcome(0.0, [0.2], 0.4, 1), outcome(0.4, [0.6], 0.8, 1)]
    found = summarize(runs)
    assert found.peak_concurrency == 1
    assert found.peak_concurrency_buckets == 2  # what tools that count by seconds print


def test_the_busiest_second() -> None:
    runs = [outcome(0.0, [0.1, 0.2, 1.1], 1.1, 6)]  # two tokens per chunk
    assert summarize(runs).peak_output_rate == pytest.approx(4.0)


def test_percentiles_interpolate() -> None:
    found = spread(float(i) for i in range(101))
    assert (found.mean, found.median, found.p90, found.p95, found.p99, found.max) == (50.0, 50.0, 90.0, 95.0, 99.0, 100.0)
    assert found.p999 == pytest.approx(99.9)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=40))
def test_the_peak_is_the_most_open_at_any_moment(pairs: list[tuple[int, int]]) -> None:
    intervals = [(float(begin), float(begin + length)) for begin, length in pairs]
    naive = max((sum(1 for b, e in intervals if b <= moment < e) for moment in range(72)), default=0)
    assert peak_concurrency(intervals) == naive


def test_the_steady_rate_leaves_ramp_and_tail_out() -> None:
    """Three requests, two at a time between 1 s and 3 s; four tokens of the six arrive then."""
    runs = [outcome(0.0, [0.5, 2.0], 2.0, 2), outcome(1.0, [1.0, 2.9], 3.0, 2), outcome(2.0, [2.5, 4.0], 4.0, 2)]
    found = summarize(runs)
    assert [found.steady_s, found.steady_rate] == pytest.approx([2.0, 2.0])
    assert "Output throughput at 2 in flight:" in render(found, ABOUT)
    assert summarize([]).steady_rate is None
    assert busiest_window([(0.0, 1.0), (5.0, 6.0)]) == (0.0, 6.0)


def test_goodput_counts_requests_that_meet_all_targets() -> None:
    targets = parse_targets(["ttft:500", "tpot:50"])
    fast = outcome(0.0, [0.4, 0.5], 0.5, 4)
    late = outcome(0.0, [0.6, 0.7], 0.7, 4)
    slow = outcome(0.0, [0.4, 1.0], 1.0, 4)
    failed = outcome(0.0, [0.1], 0.1, 1, error="timeout")
    assert [meets(o, targets) for o in (fast, late, slow, failed)] == [True, False, False, False]
    found = summarize([fast, late, slow, failed], targets)
    assert found.goodput_requests == 1
    assert found.goodput == pytest.approx(1.0)
    assert meets(outcome(0.0, [0.1, 0.5], 0.5, 2), parse_targets(["itl:400"]))
    assert not meets(outcome(0.0, [0.1, 0.5], 0.5, 2), parse_targets(["itl:399"]))


@pytest.mark.parametrize("word", ["ttft", "ttft:", "ttft:fast", "speed:5", "ttft:-1"])
def test_targets_that_make_no_sense(word: str) -> None:
    with pytest.raises(ConfigError, match="--goodput"):
        parse_targets([word])


def test_the_report_names_what_was_measured() -> None:
    text = render(summarize([outcome(0.0, [0.5, 1.0], 1.0, 128)], {"ttft": 1.0}), replace(ABOUT, targets={"ttft": 1.0}))
    for line in ("Median TTFT (ms):", "P99 ITL (ms):", "P99.9 ITL (ms):", "Max ITL (ms):", "Goodput (req/s), ttft:1000 ms:", "all 512"):
        assert line in text
    assert "512 tokens in, 128 out, seed 7" in text.splitlines()[-1]


def test_no_headline_without_a_version_or_a_success() -> None:
    good = summarize([outcome(0.0, [0.5, 1.0], 1.0, 128)])
    assert headline(good, replace(ABOUT, server_version="")).startswith("No headline: the server does not tell its version")
    bad = summarize([outcome(0.0, [], 1.0, 0, error="HTTP 500")])
    assert headline(bad, ABOUT) == "No headline: no request succeeded."


def test_arrivals_are_reproducible_and_have_the_asked_mean() -> None:
    requests = [BenchRequest(prompt_ids=(1,))] * 4000
    times = schedule(requests, 50.0, 1.0, seed=3)
    assert times == schedule(requests, 50.0, 1.0, seed=3) != schedule(requests, 50.0, 1.0, seed=4)
    assert times == sorted(times)
    assert times[-1] / len(times) == pytest.approx(1 / 50, rel=0.1)
    assert set(schedule(requests, float("inf"), 1.0, 3)) == {0.0}
    assert schedule([BenchRequest(at_s=5.0)], 50.0, 1.0, 3) == [5.0]
