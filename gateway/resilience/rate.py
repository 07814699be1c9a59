"""So many requests a second, and no more than a burst of them at once."""

from __future__ import annotations

from collections.abc import Callable

_ROUNDING = 1e-6  # of a token: who waits for as long as `wait_s` says finds one


class TokenBucket:
    """`rate` tokens a second flow in, at most `burst` are kept; it begins full. A request takes one. `clock` returns monotonic seconds."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        self.rate = rate
        self._burst = max(1.0, burst)
        self._clock = clock
        self._kept = self._burst
        self._kept_at = clock()

    def take(self) -> bool:
        """False if there is none yet."""
        level = self._level()
        has_one = level >= 1.0 - _ROUNDING
        self._kept, self._kept_at = level - has_one, self._clock()
        return has_one

    def wait_s(self, ahead: int = 0) -> float:
        """Seconds until there is one for who comes behind `ahead` others."""
        missing = ahead + 1 - self._level()
        return missing / self.rate if missing > _ROUNDING else 0.0

    def _level(self) -> float:
        """A clock that is set back gives nothing and takes nothing."""
        gained = max(0.0, self._clock() - self._kept_at) * self.rate
        return min(self._burst, self._kept + gained)
