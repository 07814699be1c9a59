"""How many requests may run at once: a fixed number, or one that finds the knee of throughput over concurrency."""

from __future__ import annotations

from typing import Protocol


class Limit(Protocol):
    @property
    def value(self) -> int: ...

    def observe(self, took_s: float, tokens: int, running: int, was_queue: bool) -> None:
        """A request ended after `took_s` seconds with `tokens` of work, `running` others and itself running.

        `was_queue`: requests were waiting, so the limit, not the demand, set the concurrency.
        """
        ...


class FixedLimit:
    """Always the same."""

    def __init__(self, value: int) -> None:
        self.value = value

    def observe(self, took_s: float, tokens: int, running: int, was_queue: bool) -> None:
        return


class AdaptiveLimit:
    """Climbs while more concurrency brings more throughput, and stays where it stops doing so.

    Limits are steps of a geometric ladder. While requests queue, each window of completions measures the throughput of
    the present step from the latencies in it (Little: running / latency per token). The limit goes up when a step has
    gained over the one below by at least `gain` of what the added concurrency could bring, and down when it has not;
    every `probe_windows` it looks one step up again, because the fleet and the traffic change.
    """

    def __init__(
        self,
        *,
        initial: int = 64,
        least: int = 4,
        most: int = 4096,
        step: float = 1.25,
        gain: float = 0.3,
        window: int = 32,
        probe_windows: int = 16,
    ) -> None:
        self._ladder = _ladder(least, most, step)
        self._at = next(i for i, value in enumerate(self._ladder) if value >= min(initial, most))
        self._gain = gain
        self._window = window
        self._probe_windows = probe_windows
        self._rates: dict[int, float] = {}
        self._start_window()
        self._quiet = 0

    @property
    def value(self) -> int:
        return self._ladder[self._at]

    def observe(self, took_s: float, tokens: int, running: int, was_queue: bool) -> None:
        if not was_queue or took_s <= 0:
            self._start_window()
            return
        self._count += 1
        self._busy_s += took_s
        self._tokens += max(1, tokens)
        self._running += running
        if self._count >= self._window + self.value:
            rate = self._running / self._count * self._tokens / self._busy_s
            self._start_window()
            self._judge(rate)

    def _start_window(self) -> None:
        self._count = 0
        self._busy_s = 0.0
        self._tokens = 0
        self._running = 0

    def _judge(self, rate: float) -> None:
        known = self._rates.get(self._at)
        self._rates[self._at] = rate if known is None else 0.5 * (known + rate)
        below = self._rates.get(self._at - 1)
        if below is None:
            self._move(-1 if self._at > 0 and self._at + 1 in self._rates else 1)
        elif self._gained(below, self._rates[self._at]):
            self._climb()
        else:
            self._move(-1)

    def _gained(self, below: float, here: float) -> bool:
        possible = self._ladder[self._at] / self._ladder[self._at - 1] - 1
        return here / below - 1 >= self._gain * possible

    def _climb(self) -> None:
        above = self._rates.get(self._at + 1)
        self._quiet += 1
        if above is None or self._quiet >= self._probe_windows:
            self._quiet = 0
            self._move(1)

    def _move(self, by: int) -> None:
        self._at = min(len(self._ladder) - 1, max(0, self._at + by))


def _ladder(least: int, most: int, step: float) -> list[int]:
    values = [least]
    while values[-1] < most:
        values.append(min(most, max(values[-1] + 1, round(values[-1] * step))))
    return values
