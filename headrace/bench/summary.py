"""The figures of a run, from its outcomes alone."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headrace.bench.goodput import meets
from headrace.bench.record import Outcome


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and percentiles of one measure."""

    mean: float = 0.0
    median: float = 0.0
    p90: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    p999: float = 0.0
    max: float = 0.0


@dataclass(frozen=True, slots=True)
class Lengths:
    """Distribution of a length in tokens."""

    count: int = 0
    least: int = 0
    mean: float = 0.0
    median: float = 0.0
    most: int = 0


@dataclass(frozen=True, slots=True)
class Summary:
    """Every figure of the report. Times in seconds, rates per second."""

    requests: int
    succeeded: int
    failures: dict[str, int]
    duration: float
    input_tokens: int
    output_tokens: int
    streamed_chunks: int
    cached_tokens: int | None
    request_rate: float
    output_rate: float
    peak_output_rate: float
    total_rate: float
    concurrency: float
    peak_concurrency: int
    peak_concurrency_buckets: int
    input_lengths: Lengths
    output_lengths: Lengths
    e2e: Spread
    ttft: Spread
    tpot: Spread
    itl: Spread
    goodput: float | None = None
    goodput_requests: int | None = None
    steady_rate: float | None = None  # output tokens per second while as many were in flight as ever
    steady_s: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Plain values, for a JSON line."""
        return asdict(self)


def summarize(outcomes: Sequence[Outcome], targets: Mapping[str, float] | None = None) -> Summary:
    """Figures of all successful requests; failures are counted by kind and enter nothing else."""
    good = [outcome for outcome in outcomes if outcome.ok]
    begin = min((outcome.sent for outcome in outcomes), default=0.0)
    duration = max(max((outcome.ended for outcome in outcomes), default=0.0) - begin, 1e-9)
    inputs, outputs = sum(o.prompt_tokens for o in good), sum(o.output_tokens for o in good)
    cached = [o.cached_tokens for o in good if o.cached_tokens is not None]
    met = sum(1 for o in good if meets(o, targets)) if targets else None
    full = busiest_window([(o.sent, o.ended) for o in outcomes])
    return Summary(
        requests=len(outcomes),
        succeeded=len(good),
        failures=dict(Counter(o.error for o in outcomes if not o.ok)),
        duration=duration,
        input_tokens=inputs,
        output_tokens=outputs,
        streamed_chunks=sum(len(o.events) for o in good),
        cached_tokens=sum(cached) if cached else None,
        request_rate=len(good) / duration,
        output_rate=outputs / duration,
        peak_output_rate=_busiest_second(good, begin),
        total_rate=(inputs + outputs) / duration,
        concurrency=sum(o.latency for o in good) / duration,
        peak_concurrency=peak_concurrency((o.sent, o.ended) for o in outcomes),  # one that failed was in flight too
        peak_concurrency_buckets=_peak_in_buckets([(o.sent - begin, o.ended - begin) for o in good]),
        input_lengths=_lengths([o.prompt_tokens for o in good]),
        output_lengths=_lengths([o.output_tokens for o in good]),
        e2e=spread([o.latency for o in good]),
        ttft=spread([o.ttft for o in good]),
        tpot=spread([o.tpot for o in good if o.tpot is not None]),
        itl=spread([gap for o in good for gap in o.gaps]),
        goodput=met / duration if met is not None else None,
        goodput_requests=met,
        steady_rate=_rate_within(good, *full) if full[1] > full[0] else None,
        steady_s=full[1] - full[0],
    )


def spread(values: Iterable[float]) -> Spread:
    """Percentiles with linear interpolation between ranks; all zero for no values."""
    ordered = sorted(values)
    if not ordered:
        return Spread()
    return Spread(
        mean=math.fsum(ordered) / len(ordered),
        median=percentile(ordered, 0.5),
        p90=percentile(ordered, 0.9),
        p95=percentile(ordered, 0.95),
        p99=percentile(ordered, 0.99),
        p999=percentile(ordered, 0.999),
        max=ordered[-1],
    )


def percentile(ordered: Sequence[float], q: float) -> float:
    """Value at quantile `q` of an ascending sequence."""
    place = q * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def peak_concurrency(intervals: Iterable[tuple[float, float]]) -> int:
    """Most intervals open at the same moment; one that ends as another begins does not overlap it."""
    changes = sorted(change for begin, end in intervals for change in ((begin, 1), (end, -1)))
    now = most = 0
    for _, step in changes:
        now += step
        most = max(most, now)
    return most


def busiest_window(intervals: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """From the first moment to the last at which as many intervals are open as ever; ramp and tail lie outside."""
    changes = sorted(change for begin, end in intervals for change in ((begin, 1), (end, -1)))
    most, now, first, last = peak_concurrency(intervals), 0, 0.0, 0.0
    reached = False
    for at, step in changes:
        if now == most and step < 0:
            last = at
        now += step
        if now == most and not reached:
            first, reached = at, True
    return first, last


def _rate_within(outcomes: Sequence[Outcome], begin: float, end: float) -> float:
    """Output tokens per second between two moments; a request's tokens are spread evenly over its chunks."""
    tokens = sum(o.output_tokens / len(o.events) * sum(begin <= event < end for event in o.events) for o in outcomes if o.events)
    return tokens / (end - begin)


def _peak_in_buckets(intervals: Sequence[tuple[float, float]]) -> int:
    """As other tools count: requests that touch the same second, even one after the other."""
    touched: Counter[int] = Counter()
    for begin, end in intervals:
        touched.update(range(int(begin), int(end) + 1))
    return max(touched.values(), default=0)


def _busiest_second(outcomes: Sequence[Outcome], begin: float) -> float:
    """Most output tokens in one second of the run; a request's tokens are spread evenly over its chunks."""
    seconds: defaultdict[int, float] = defaultdict(float)
    for outcome in outcomes:
        weight = outcome.output_tokens / len(outcome.events) if outcome.events else 0.0
        for event in outcome.events:
            seconds[int(event - begin)] += weight
    return max(seconds.values(), default=0.0)


def _lengths(values: Sequence[int]) -> Lengths:
    if not values:
        return Lengths()
    ordered = sorted(values)
    return Lengths(len(ordered), ordered[0], sum(ordered) / len(ordered), percentile(ordered, 0.5), ordered[-1])
