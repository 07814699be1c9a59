"""What the prefix cache tells the outside: blocks stored, removed, all cleared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_MOST_PENDING = 65536


@dataclass(frozen=True, slots=True)
class Stored:
    """Consecutive blocks of one path: hashes[0] follows `parent`, hashes[i] follows hashes[i - 1]."""

    parent: int
    hashes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Removed:
    """Blocks that are gone, children before parents."""

    hashes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cleared:
    """All blocks are gone."""


CacheEvent = Stored | Removed | Cleared


@dataclass(frozen=True, slots=True)
class CacheEvents:
    """Events `first_seq`, `first_seq + 1`, …; a reader that expected another number or epoch needs a snapshot."""

    epoch: int
    first_seq: int
    events: Sequence[CacheEvent]


@dataclass(frozen=True, slots=True)
class CacheSnapshot:
    """All blocks as of just before event `next_seq`."""

    epoch: int
    next_seq: int
    blocks: Sequence[Stored]


class EventLog:
    """Collects events until they are drained. If nobody drains, old ones are dropped, which readers see as a gap."""

    def __init__(self, enabled: bool = True, epoch: int = 0) -> None:
        self.enabled = enabled
        self.epoch = epoch
        self.next_seq = 0
        self._pending: list[CacheEvent] = []

    def add(self, event: CacheEvent) -> None:
        if not self.enabled:
            return
        if len(self._pending) >= _MOST_PENDING:
            self._pending.clear()
        self._pending.append(event)
        self.next_seq += 1

    def drain(self) -> CacheEvents:
        """Everything since the last drain."""
        events, self._pending = self._pending, []
        return CacheEvents(self.epoch, self.next_seq - len(events), events)
