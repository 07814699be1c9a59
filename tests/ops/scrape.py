"""What the pods of a release say of themselves on /metrics."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from tests.helm.processes import Pod

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Scrape:
    """All samples of one page."""

    samples: dict[tuple[str, Labels], float]

    def sum(self, name: str, **labels: str) -> float:
        """Sum over the series of that name that carry these labels; 0 without any."""
        wanted = set(labels.items())
        return sum(value for (found, own), value in self.samples.items() if found == name and wanted <= own)

    def by(self, name: str, label: str) -> dict[str, float]:
        """Sums by one label, zeros left out."""
        sums: dict[str, float] = {}
        for (found, own), value in self.samples.items():
            if found == name and value:
                key = dict(own)[label]
                sums[key] = sums.get(key, 0.0) + value
        return sums

    def series(self) -> int:
        """Number of series of ours."""
        return sum(name.startswith("headrace_") for name, _ in self.samples)


def scrape(pod: Pod) -> Scrape:
    """Read a pod's metrics now."""
    with urllib.request.urlopen(f"http://127.0.0.1:{pod.config['metrics_port']}/metrics", timeout=10) as response:
        text = response.read().decode()
    return Scrape({(s.name, frozenset(s.labels.items())): s.value for f in text_string_to_metric_families(text) for s in f.samples})


def settled(pod: Pod, condition: Callable[[Scrape], bool], seconds: float = 10) -> Scrape:
    """Scrape until a condition holds; the last scrape is returned either way, for the caller to compare."""
    end = time.monotonic() + seconds
    while True:
        seen = scrape(pod)
        if condition(seen) or time.monotonic() > end:
            return seen
        time.sleep(0.1)
