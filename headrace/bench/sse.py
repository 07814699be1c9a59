"""Splits a streamed body into server-sent events, and notes when each arrived."""

from __future__ import annotations

from array import array
from collections.abc import Callable

_END = b"\n\n"
_DONE = b"data: [DONE]"


class EventReader:
    """Collects the `data:` events of one answer. `counts(event)` says whether an event carries output."""

    def __init__(self, counts: Callable[[bytes], bool]) -> None:
        self.times: array[float] = array("d")
        self.events: list[bytes] = []
        self.saw_done = False
        self.failed: bytes | None = None
        self._counts = counts
        self._rest = b""

    def feed(self, data: bytes, now: float) -> None:
        """Take a part of the body that arrived at `now`."""
        if self._rest:
            data = self._rest + data
            self._rest = b""
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        parts = data.split(_END)
        self._rest = parts.pop()
        for part in parts:
            if not part.startswith(b"data:"):
                continue  # comments keep a stream alive
            if part.startswith(_DONE):
                self.saw_done = True
                continue
            if b'"error"' in part and part.startswith((b'data: {"error"', b'data:{"error"')):
                self.failed = part[5:].strip()
                continue
            self.events.append(part)
            if self._counts(part):
                self.times.append(now)

    def drop_last_time(self) -> None:
        """The last event turned out to bring no tokens."""
        if self.times:
            self.times.pop()
