"""The last decisions of the scheduler, kept so that every turn can be explained."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision. `kind` is admit, chunk, skip, retract, preempt, reject, finish, shrink, grow or flush."""

    turn: int
    time_ns: int
    kind: str
    request_id: str = ""
    handle: int = -1
    reason: str = ""
    numbers: tuple[tuple[str, float], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        values = asdict(self)
        del values["numbers"]
        return {**values, **dict(self.numbers)}


class DecisionRing:
    """Newest decisions, oldest dropped. A skip that says again what the last entry said is not repeated."""

    def __init__(self, size: int) -> None:
        self._ring: deque[tuple[int, int, str, str, int, str, dict[str, float]]] = deque(maxlen=size)
        self.turn = 0
        self.total = 0
        self._last_skip: tuple[int, str] = (-1, "")

    def add(self, time_ns: int, kind: str, request_id: str = "", handle: int = -1, reason: str = "", **numbers: float) -> None:
        if kind == "skip":
            if self._last_skip == (handle, reason):
                return
            self._last_skip = (handle, reason)
        else:
            self._last_skip = (-1, "")
        self.total += 1
        self._ring.append((self.turn, time_ns, kind, request_id, handle, reason, numbers))

    def last(self, count: int) -> list[Decision]:
        """The newest `count` decisions, newest last."""
        ring = list(self._ring)
        return [Decision(*entry[:-1], tuple(entry[-1].items())) for entry in ring[max(len(ring) - count, 0) :]]
