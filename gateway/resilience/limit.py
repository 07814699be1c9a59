"""How many requests may run at once: a fixed number, or one that finds the knee of throughput over concurrency."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

_SETTLED = 2  # times the limit: completions after a change that still tell of the limit before


class Limit(Protocol):
    @property
    def value(self) -> int: ...

    def observe(self, took_s: float, tokens: int, running: int, was_queue: bool) -> None:
        """A request ended after `took_s` seconds with `tokens` of work, `running` others and itself running.

        `was_queue`: requests were waiting, so the limit, not the demand, set the concurrency.
        """
        ...

    def resize(self, slots: int) -> None:
        """The workers can run `slots` requests at once; 0 is not known."""
        ...


class FixedLimit:
    """Always the same."""

    def __init__(self, value: int) -> None:
        self.value = value

    def observe(self, took_s: float, tokens: int, running: int, was_queue: bool) -> None:
        return

    def resize(self, slots: int) -> None:
        return


@dataclass(frozen=True, slots=True)
class _Rate:
    """Tokens per second measured at one step of the ladder, and in which window."""

    rate: float
    window: int


class AdaptiveLimit:
    """Climbs while more concurrency brings more throughput, and stays where it stops doing so.

    It begins with as many as the workers say they can run, so that nobody waits who could have run, and grows and shrinks
    with the fleet. Limits are steps of a geometric ladder. While requests queue, each window of completions measures the
    throughput of the present step from the latencies in it (Little: running / latency per token), once those admitted
    under another limit have gone. A step earns its place by gaining over the one below at least `gain` of what the added
    concurrency could bring. Every `probe_windows` it looks one step up or down again, and what was measured four times as
    long ago is forgotten, because the fleet and the traffic change.
    """

    def __init__(
        self,
        *,
        initial: int = 64,
        least: int = 4,
        most: int = 4096,
        step: float = 1.25,
        gain: float = 0.15,
        window: int = 160,
        probe_windows: int = 8,
    ) -> None:
        self._ladder = _ladder(least, most, step)
        self._step = step
        self._slots = 0
        self._at = self._index(initial)
        self._gain = gain
        self._window = window
        self._probe_windows = probe_windows
        self._rates: dict[int, _Rate] = {}
        self._windows = 0
        self._remembered = 4 * probe_windows
        self._start_window()
        self._quiet = 0
        self._settling = _SETTLED * self.value

    @property
    def value(self) -> int:
        return self._ladder[self._at]

    def resize(self, slots: int) -> None:
        if slots <= 0 or slots == self._slots:
            return
        by = round(math.log(slots / self._slots, self._step)) if self._slots else self._index(slots) - self._at
        if by or not self._slots:
            self._slots = slots
            self._move(by)
            self._rates.clear()
            self._start_window()

    def observe(self, took_s: float, tokens: int, running: int, was_queue: bool) -> None:
        if not was_queue or took_s <= 0:
            self._start_window()
            return
        if self._settling:
            self._settling -= 1
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
        """One step from the neighbours' rates: down if here gains nothing over below, up if above gains over here."""
        self._windows += 1
        self._rates = {at: known for at, known in self._rates.items() if self._windows - known.window < self._remembered}
        before = self._rates.get(self._at)
        self._rates[self._at] = _Rate(rate if before is None else 0.5 * (before.rate + rate), self._windows)
        below, above = self._at - 1 in self._rates, self._at + 1 in self._rates
        if below and not self._gains(self._at):
            self._move(-1)
        elif self._at < self._top and (not above or self._gains(self._at + 1)):
            self._move(1)
        elif not below:
            self._move(-1)
        else:
            self._quiet += 1
            if self._quiet % self._probe_windows == 0:
                self._move(1 if self._quiet // self._probe_windows % 2 else -1)

    def _gains(self, at: int) -> bool:
        """Whether this step of the ladder has earned its place over the one below."""
        possible = self._ladder[at] / self._ladder[at - 1] - 1
        return self._rates[at].rate / self._rates[at - 1].rate - 1 >= self._gain * possible

    @property
    def _top(self) -> int:
        """One step above what the workers can run at once: what is more waits there, where nobody's turn is kept."""
        return min(len(self._ladder) - 1, self._index(self._slots) + 1) if self._slots else len(self._ladder) - 1

    def _index(self, wanted: int) -> int:
        return next((i for i, value in enumerate(self._ladder) if value >= wanted), len(self._ladder) - 1)

    def _move(self, by: int) -> None:
        self._at = min(self._top, max(0, self._at + by))
        self._settling = _SETTLED * self.value


def _ladder(least: int, most: int, step: float) -> list[int]:
    values = [least]
    while values[-1] < most:
        values.append(min(most, max(values[-1] + 1, round(values[-1] * step))))
    return values
