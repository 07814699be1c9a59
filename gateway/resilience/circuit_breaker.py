"""Keeps requests away from a worker that fails, and lets a few through to see whether it has healed.

    closed ──failures in the window──► open ──open_s──► half_open ──successes──► closed
                                         ▲──────any failure────────┘

Overload, refusal of a bad request and cancellation say nothing about health: they release a permit without a verdict,
so half-open can never run out of trial calls for good.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Verdict = Literal["success", "failure", "neutral"]


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """failures: verdicts within `window_s` that open it, if they came in a row or are `failure_share` of all.

    trials: calls allowed at once while half open; successes: good verdicts that close it.
    """

    enabled: bool = True
    failures: int = 10
    successes: int = 3
    trials: int = 3
    open_s: float = 60.0
    window_s: float = 120.0
    failure_share: float = 0.5


class Permit:
    """The right to make one call. Ends with exactly one verdict; further ones are ignored."""

    __slots__ = ("_breaker", "_generation", "settled", "trial")

    def __init__(self, breaker: CircuitBreaker, generation: int, trial: bool) -> None:
        self._breaker = breaker
        self._generation = generation
        self.trial = trial
        self.settled = False

    def settle(self, verdict: Verdict) -> None:
        if not self.settled:
            self.settled = True
            self._breaker._settle(verdict, self._generation, self.trial)


class _Window:
    """Verdicts of the last `length_s` seconds in a fixed number of slices."""

    SLICES = 12

    def __init__(self, length_s: float) -> None:
        self._slice_s = length_s / self.SLICES
        self.clear()

    def clear(self) -> None:
        self._counts: dict[int, list[int]] = {}

    def add(self, now: float, failed: bool) -> None:
        self._expire(now)
        self._counts.setdefault(int(now // self._slice_s), [0, 0])[failed] += 1

    def totals(self, now: float) -> tuple[int, int]:
        """(successes, failures) that are not older than the window."""
        self._expire(now)
        return sum(c[0] for c in self._counts.values()), sum(c[1] for c in self._counts.values())

    def _expire(self, now: float) -> None:
        oldest = int(now // self._slice_s) - self.SLICES + 1
        for old in [key for key in self._counts if key < oldest]:
            del self._counts[old]


class CircuitBreaker:
    """One worker's breaker. `clock` returns monotonic seconds."""

    def __init__(self, settings: BreakerSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._state = BreakerState.CLOSED
        self._window = _Window(settings.window_s)
        self._in_a_row = 0
        self._opened_at = 0.0
        self._trials = 0
        self._healed = 0
        self._generation = 0
        self.transitions: dict[BreakerState, int] = dict.fromkeys(BreakerState, 0)

    @property
    def state(self) -> BreakerState:
        if self._state is BreakerState.OPEN and self._clock() - self._opened_at >= self._settings.open_s:
            self._enter(BreakerState.HALF_OPEN)
        return self._state

    def allows(self) -> bool:
        """Would `acquire` grant a permit now?"""
        if not self._settings.enabled or self.state is BreakerState.CLOSED:
            return True
        return self._state is BreakerState.HALF_OPEN and self._trials < self._settings.trials

    def retry_after_s(self) -> float:
        """Seconds until an open breaker allows trial calls."""
        return max(0.0, self._opened_at + self._settings.open_s - self._clock()) if self.state is BreakerState.OPEN else 0.0

    def acquire(self) -> Permit:
        """A permit for one call. Callers ask `allows` first, or override it when most of a fleet is open."""
        trial = self.state is BreakerState.HALF_OPEN
        self._trials += trial
        return Permit(self, self._generation, trial)

    def reset(self) -> None:
        """Forget everything: the worker has started anew."""
        if self._state is not BreakerState.CLOSED:
            self._enter(BreakerState.CLOSED)
        self._window.clear()
        self._in_a_row = 0

    def _settle(self, verdict: Verdict, generation: int, trial: bool) -> None:
        current = generation == self._generation
        if trial and current:
            self._trials -= 1
        if verdict == "neutral" or not self._settings.enabled:
            return
        state = self.state
        if state is BreakerState.HALF_OPEN:
            if trial and current:
                self._judge_trial(verdict)
        elif state is BreakerState.CLOSED and current:
            self._judge(verdict)

    def _judge_trial(self, verdict: Verdict) -> None:
        if verdict == "failure":
            self._enter(BreakerState.OPEN)
            return
        self._healed += 1
        if self._healed >= self._settings.successes:
            self._enter(BreakerState.CLOSED)

    def _judge(self, verdict: Verdict) -> None:
        now, failed = self._clock(), verdict == "failure"
        self._in_a_row = self._in_a_row + 1 if failed else 0
        self._window.add(now, failed)
        if not failed:
            return
        good, bad = self._window.totals(now)
        if bad >= self._settings.failures and (
            self._in_a_row >= self._settings.failures or bad >= self._settings.failure_share * (good + bad)
        ):
            self._enter(BreakerState.OPEN)

    def _enter(self, state: BreakerState) -> None:
        self._state = state
        self._generation += 1
        self._trials = self._healed = self._in_a_row = 0
        self.transitions[state] += 1
        if state is BreakerState.OPEN:
            self._opened_at = self._clock()
        elif state is BreakerState.CLOSED:
            self._window.clear()
