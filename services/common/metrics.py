"""A process's metrics: families come from `metric_families`, label values are bounded, gauges are read when scraped.

    metrics = Metrics("gateway")
    metrics.counter("headrace_retries_total", reason="overloaded").inc()
    metrics.gauge("headrace_requests_waiting").read(lambda: len(queue))
    metrics.rows("headrace_breaker_state", lambda: [((w.name,), w.breaker.number) for w in registry])
    host = ServiceHost(config, SERVICES, metrics=metrics)

Families without labels, or with fixed label values, are exported at 0 from the start, so that a rate sees the first event;
those of a feature that may be off, and those with open labels, from the first time they are asked for. Keep the
instruments you use often: asking costs two dictionary lookups.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from services.common.instruments import Counter, Gauge, Histogram
from services.common.metric_families import FAMILIES, OTHER, Family, Kind
from services.common.version import VERSION

Instrument = Counter | Gauge | Histogram
Rows = Callable[[], Iterable[tuple[Sequence[str], float]]]
I = TypeVar("I", Counter, Gauge, Histogram)  # noqa: E741


@dataclass(slots=True)
class _Series:
    """The exported series of one family."""

    family: Family
    buckets: tuple[float, ...]
    children: dict[tuple[str, ...], Instrument] = field(default_factory=dict)
    seen: list[set[str]] = field(default_factory=list)
    rows: Rows | None = None

    def make(self) -> Instrument:
        if self.family.kind is Kind.HISTOGRAM:
            return Histogram(self.buckets)
        return Counter() if self.family.kind is Kind.COUNTER else Gauge()

    def known(self) -> Iterator[tuple[str, ...]]:
        """Label values of all series, where they are known beforehand; else nothing."""
        if self.family.can_start_at_zero:
            yield from itertools.product(*(label.values for label in self.family.labels))

    def prefill(self) -> None:
        """Start at 0 what is known beforehand."""
        self.children.update((values, self.make()) for values in self.known())

    def bounded(self, values: Sequence[str]) -> tuple[str, ...]:
        """The label values with those that are unknown or one too many replaced by "other"."""
        kept = []
        for label, seen, value in zip(self.family.labels, self.seen, values, strict=True):
            if label.values:
                kept.append(value if value in label.values else OTHER)
            elif value in seen or len(seen) < label.limit:
                seen.add(value)
                kept.append(value)
            else:
                kept.append(OTHER)
        return tuple(kept)


class Metrics(Collector):
    """All metrics of one process."""

    def __init__(
        self,
        process: str,
        *,
        constant: Mapping[str, str] | None = None,
        buckets: Mapping[str, Sequence[float]] | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        """`process`: a key of FAMILIES. `constant`: labels put on every series. `buckets`: bounds in place of a family's own."""
        self._declared = {family.name: family for family in FAMILIES[process]}
        self._constant = dict(constant or {})
        self._buckets = {name: tuple(bounds) for name, bounds in (buckets or {}).items()}
        self._series: dict[str, _Series] = {}
        self._found: dict[tuple[object, ...], Instrument] = {}  # by kind, name, labels; only those under their own labels
        self.registry = registry if registry is not None else CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        for family in self._declared.values():
            if family.can_start_at_zero and not family.when:
                self._of(family.name)
        self.gauge("headrace_build_info", service=process, version=VERSION).set(1)

    def counter(self, name: str, **labels: str) -> Counter:
        """The counter of a family with these label values. KeyError for a family or label that is not declared."""
        return self._child(Counter, name, labels)

    def gauge(self, name: str, **labels: str) -> Gauge:
        """The gauge of a family with these label values."""
        return self._child(Gauge, name, labels)

    def histogram(self, name: str, **labels: str) -> Histogram:
        """The histogram of a family with these label values."""
        return self._child(Histogram, name, labels)

    def rows(self, name: str, source: Rows) -> None:
        """Export a counter's or gauge's series from `source` at each scrape: (label values in declared order, value) each.

        Series that are known beforehand and not in `source` are 0: a counter that is born with 1 has no increase.
        """
        series = self._of(name)
        if series.family.kind is Kind.HISTOGRAM:
            raise TypeError(f"{name} is a histogram")
        series.rows = source
        series.children.clear()
        self._found.clear()

    def forget(self, **labels: str) -> None:
        """Drop all series that carry these label values, such as those of a worker that has gone."""
        self._found.clear()
        for series in list(self._series.values()):
            names = [label.name for label in series.family.labels]
            if not labels or not set(labels) <= set(names):
                continue
            wanted = [(names.index(name), value) for name, value in labels.items()]
            for values in [v for v in series.children if all(v[i] == value for i, value in wanted)]:
                del series.children[values]
            for i, value in wanted:
                if not any(v[i] == value for v in series.children):
                    series.seen[i].discard(value)

    def collect(self) -> Iterator[Metric]:
        """What a scrape sees, in the order of first use."""
        for series in list(self._series.values()):
            yield self._export(series)

    def _of(self, name: str) -> _Series:
        series = self._series.get(name)
        if series is None:
            family = self._declared[name]
            series = _Series(family, self._buckets.get(name, family.buckets), seen=[set() for _ in family.labels])
            series.prefill()
            self._series[name] = series
        return series

    def _child(self, kind: type[I], name: str, labels: Mapping[str, str]) -> I:
        key = (kind, name, *labels.items())
        found = self._found.get(key)
        if found is not None:
            return cast(I, found)
        series = self._of(name)
        given = [labels[label.name] for label in series.family.labels]
        values = series.bounded(given)
        if len(values) != len(labels):
            raise KeyError(f"{name} has no label {sorted(set(labels) - {label.name for label in series.family.labels})}")
        child = series.children.get(values)
        if child is None:
            child = series.children[values] = series.make()
        if not isinstance(child, kind):
            raise TypeError(f"{name} is a {series.family.kind}")
        if values == tuple(given):
            self._found[key] = child
        return child

    def _export(self, series: _Series) -> Metric:
        family = series.family
        names = [*self._constant, *(label.name for label in family.labels)]
        fixed = list(self._constant.values())
        if family.kind is Kind.HISTOGRAM:
            exported = HistogramMetricFamily(family.name, family.help, labels=names)
            for values, child in list(series.children.items()):
                assert isinstance(child, Histogram)
                exported.add_metric([*fixed, *values], child.cumulative(), child.sum)
            return exported
        made = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
        plain = made(family.name, family.help, labels=names)
        for labels, value in self._values(series):
            plain.add_metric([*fixed, *labels], value)
        return plain

    def _values(self, series: _Series) -> Iterator[tuple[Sequence[str], float]]:
        for values, child in list(series.children.items()):
            assert not isinstance(child, Histogram)
            yield values, child.value
        if series.rows is not None:
            merged = dict.fromkeys(series.known(), 0.0)
            for labels, value in series.rows():
                key = series.bounded(labels)
                merged[key] = merged[key] + value if key in merged else value
            yield from merged.items()
