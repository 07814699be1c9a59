"""Sweeps find a planted knee; comparisons say only what all pairs of runs say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.bench.chart import as_text
from headrace.bench.compare import CompareConfig, compare
from headrace.bench.knee import Level, knee, within
from headrace.bench.ratios import ratios, table
from headrace.bench.summary import Spread, Summary, summarize
from headrace.bench.sweep import SweepConfig, sweep
from tests.fakes.openai_server import FakeServer


def levels(*rates: tuple[int, float]) -> list[Level]:
    return [Level(cap, rate, 0.1 * cap, 0.2 * cap, 0.01, 0.02, 0.5) for cap, rate in rates]


@pytest.mark.parametrize(
    ("rates", "cap"),
    [
        ([(1, 175.0), (8, 255.6), (32, 253.1)], 8),  # rises by 46 percent, then falls by one
        ([(1, 100.0), (8, 103.0), (32, 104.0)], 1),
        ([(1, 10.0), (8, 80.0), (32, 300.0)], 32),
    ],
)
def test_the_knee_is_the_cap_after_which_throughput_stops_rising(rates: list[tuple[int, float]], cap: int) -> None:
    assert knee(levels(*rates), 0.05).cap == cap


def test_the_highest_cap_within_targets() -> None:
    found = levels((1, 10.0), (8, 80.0), (32, 90.0))
    best = within(found, ttft=1.7, tpot=None)
    assert best is not None
    assert best.cap == 8
    assert within(found, ttft=None, tpot=0.001) is None


def test_the_table_marks_the_knee() -> None:
    found = levels((1, 175.0), (8, 255.6), (32, 253.1))
    marked = [line for line in as_text(found, knee(found, 0.05)).splitlines() if "<- knee" in line]
    assert len(marked) == 1
    assert marked[0].split()[:4] == ["8", "255.6", "+46", "%"]


async def test_a_sweep_finds_the_slots_of_a_simulated_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    png = tmp_path / "sweep.png"
    async with FakeServer(gap_s=0.02, slots=4) as server:
        config = SweepConfig(
            backend="openai",
            base_url=server.url,
            random_input_len=8,
            random_output_len=6,
            levels=(1, 4, 16),
            prompts_per_slot=2,
            least_prompts=8,
            knee_gain=0.3,  # the simulated steps wander where cores are shared
            png=str(png),
        )
        assert await sweep(config) == 0
    assert "knee: a cap of 4" in capsys.readouterr().out
    assert png.read_bytes().startswith(b"\x89PNG")


def summary(rate: float, ttft: float) -> Summary:
    return replace(summarize([]), output_rate=rate, ttft=Spread(median=ttft))


def test_ratios_have_a_spread_and_may_be_undecided() -> None:
    runs_of_a = [summary(200.0, 0.10), summary(150.0, 0.09), summary(210.0, 0.12)]
    pairs = [(a, summary(100.0, 0.10)) for a in runs_of_a]
    found = {ratio.name: ratio for ratio in ratios(pairs)}
    rate, wait = found["output tok/s"], found["median TTFT"]
    assert (rate.middle, rate.least, rate.most, rate.decided) == (2.0, 1.5, 2.1, True)
    assert not wait.decided
    lines = table(list(found.values()), "one", "two", 3).splitlines()
    assert any("2.00" in line and "A is better" in line for line in lines)
    assert any(line.startswith("median TTFT") and "undecided" in line for line in lines)


async def test_both_sides_get_the_same_prompts_in_alternating_order() -> None:
    async with FakeServer() as one, FakeServer() as other:
        config = CompareConfig(num_prompts=3, random_input_len=8, random_output_len=4, rounds=2, warmup_requests=0)
        assert await compare(config, one.url, other.url) == 0
    prompts = [body["prompt"] for body in one.seen]
    assert sorted(prompts) == sorted(body["prompt"] for body in other.seen)
    assert len({tuple(prompt) for prompt in prompts}) == 6
