"""How a metric family is declared: its name, type, truth in one sentence, labels and buckets."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

OTHER = "other"  # takes every label value that is unknown or over the limit
OPEN_LIMIT = 256
_MOST_KNOWN_SERIES = 64


class Kind(StrEnum):
    """Prometheus types in use. The values are what the exposition format calls them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Label:
    """A label. With `values` it takes only those; without it is open, at most `limit` different values."""

    name: str
    values: tuple[str, ...] = ()
    limit: int = OPEN_LIMIT


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family. `known_as`: names users of other servers know it by. `when`: condition for its being exported."""

    name: str
    kind: Kind
    help: str
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()
    known_as: tuple[str, ...] = field(default=())
    when: str = ""

    @property
    def can_start_at_zero(self) -> bool:
        """Are all its series known beforehand, and few?"""
        return math.prod(len(label.values) for label in self.labels) in range(1, _MOST_KNOWN_SERIES + 1)

    def __post_init__(self) -> None:
        if self.kind is Kind.COUNTER and not self.name.endswith("_total"):
            raise ValueError(f"{self.name}: a counter's name ends in _total")
        if self.kind is not Kind.COUNTER and self.name.endswith("_total"):
            raise ValueError(f"{self.name}: only a counter's name ends in _total")
        if (self.kind is Kind.HISTOGRAM) != bool(self.buckets):
            raise ValueError(f"{self.name}: a histogram has buckets, nothing else has")
        if list(self.buckets) != sorted(set(self.buckets)):
            raise ValueError(f"{self.name}: buckets must rise")


def counter(name: str, help: str, *labels: Label, known_as: tuple[str, ...] = (), when: str = "") -> Family:
    """A total that only grows."""
    return Family(name, Kind.COUNTER, help, labels, known_as=known_as, when=when)


def gauge(name: str, help: str, *labels: Label, known_as: tuple[str, ...] = (), when: str = "") -> Family:
    """A state, read when it is scraped."""
    return Family(name, Kind.GAUGE, help, labels, known_as=known_as, when=when)


def histogram(name: str, help: str, buckets: tuple[float, ...], *labels: Label, known_as: tuple[str, ...] = (), when: str = "") -> Family:
    """A distribution. Buckets are upper bounds, without +Inf."""
    return Family(name, Kind.HISTOGRAM, help, labels, buckets, known_as, when)
