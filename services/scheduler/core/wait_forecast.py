"""How long a choice will wait, judged by how long those before it did."""

from __future__ import annotations

from services.scheduler.core.counters import smoothed

_LEAST_RETRY_MS = 1000
_MOST_RETRY_MS = 60_000


class WaitForecast:
    """Learns the time one place in the queue takes."""

    def __init__(self) -> None:
        self._ns_per_place = 0.0

    def observe(self, waited_ns: int, places: int) -> None:
        """A choice that had `places` choices before it on arrival started after `waited_ns`."""
        self._ns_per_place = smoothed(self._ns_per_place, waited_ns / (places + 1))

    def expected_ns(self, places: int) -> int | None:
        """Forecast for a choice with `places` before it; None until something was observed."""
        return int(self._ns_per_place * (places + 1)) if self._ns_per_place else None

    def retry_after_ms(self, waiting: int) -> int:
        """When a refused request should come back: when half of those that wait now will have started."""
        expected = (self.expected_ns(waiting // 2) or 0) // 1_000_000
        return min(max(expected, _LEAST_RETRY_MS), _MOST_RETRY_MS)
