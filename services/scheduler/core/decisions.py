"""The last decisions of the scheduler, kept so that every turn can be explained."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision. `kind` is step, admit, chunk, skip, retract, preempt, reject, finish, shrink, grow or flush.

    A step's `reason` is its mode; it says what it computed, what room prompts had, and how many decode steps were owed to
    running choices. Equal decode steps in a row are one entry, which counts them.
    """

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
    """Newest decisions, oldest dropped. A skip that says again what the last one said is not repeated."""

    def __init__(self, size: int) -> None:
        self._ring: deque[tuple[int, int, str, str, int, str, dict[str, float]]] = deque(maxlen=size)
        self.turn = 0
        self.total = 0
        self._last_skip: tuple[int, str] = (-1, "")
        self._decodes: dict[str, float] = {}  # numbers of the newest entry if that is a row of decode steps

    def add(self, time_ns: int, kind: str, request_id: str = "", handle: int = -1, reason: str = "", **numbers: float) -> None:
        if kind == "skip":
            if self._last_skip == (handle, reason):
                return
            self._last_skip = (handle, reason)
        else:
            self._last_skip = (-1, "")
        self._append(time_ns, kind, request_id, handle, reason, numbers)
        self._decodes = {}

    def add_step(self, time_ns: int, mode: str, prompt_tokens: int, decode_rows: int, room: int, owed: int) -> None:
        """A step was planned. `room`: most prompt tokens it might have had; `owed`: decode steps that had to come first."""
        if prompt_tokens:
            numbers: dict[str, float] = {"prompt_tokens": prompt_tokens, "decode_rows": decode_rows, "room": room}
            self._append(time_ns, "step", "", -1, mode, numbers)
            self._decodes = {}
            return
        last = self._decodes
        if last and last["decode_rows"] == decode_rows and last["owed"] == owed:
            last["steps"] += 1
            return
        self._decodes = {"decode_rows": decode_rows, "owed": owed, "steps": 1}
        self._append(time_ns, "step", "", -1, mode, self._decodes)

    def _append(self, time_ns: int, kind: str, request_id: str, handle: int, reason: str, numbers: dict[str, float]) -> None:
        self.total += 1
        self._ring.append((self.turn, time_ns, kind, request_id, handle, reason, numbers))

    def last(self, count: int) -> list[Decision]:
        """The newest `count` decisions, newest last."""
        ring = list(self._ring)
        return [Decision(*entry[:-1], tuple(entry[-1].items())) for entry in ring[max(len(ring) - count, 0) :]]
