"""When a dead child is started again, and when that has become pointless."""

from __future__ import annotations

from collections import deque

_FIRST_DELAY_S = 0.25
_LONGEST_DELAY_S = 5.0


class RestartPolicy:
    """Delays that double with every death of the last minute; the fifth is the last."""

    def __init__(self, deaths: int = 5, window_s: float = 60.0) -> None:
        self._limit, self._window = deaths, window_s
        self._died: deque[float] = deque()

    @property
    def deaths(self) -> int:
        """Deaths within the window that ended at the latest one."""
        return len(self._died)

    def on_death(self, now: float) -> float | None:
        """Seconds to wait before the next start, or None to give up. `now` is a monotonic time."""
        self._died.append(now)
        while self._died[0] <= now - self._window:
            self._died.popleft()
        if len(self._died) >= self._limit:
            return None
        return float(min(_FIRST_DELAY_S * 2 ** (len(self._died) - 1), _LONGEST_DELAY_S))
