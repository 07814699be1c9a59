"""What the prefix cache tells the outside: blocks stored, removed, all cleared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_MOST_PENDING = 65536
MOST_BLOCKS = 8192  # of one event, so that an event of the longest context still fits into a message


@dataclass(frozen=True, slots=True)
class Stored:
    """Consecutive blocks of one path: hashes[0] follows `parent`, hashes[i] follows hashes[i - 1]."""

    parent: int
    hashes: tuple[int, ...]

    def bounded(self) -> list[Stored]:
        """The same change as events of at most `MOST_BLOCKS` blocks, to be applied in this order."""
        hashes = self.hashes
        if len(hashes) <= MOST_BLOCKS:
            return [self]
        starts = range(0, len(hashes), MOST_BLOCKS)
        return [Stored(hashes[at - 1] if at else self.parent, hashes[at : at + MOST_BLOCKS]) for at in starts]


@dataclass(frozen=True, slots=True)
class Removed:
    """Blocks that are gone, children before parents."""

    hashes: tuple[int, ...]

    def bounded(self) -> list[Removed]:
        """As `Stored.bounded`."""
        if len(self.hashes) <= MOST_BLOCKS:
            return [self]
        return [Removed(self.hashes[at : at + MOST_BLOCKS]) for at in range(0, len(self.hashes), MOST_BLOCKS)]


@dataclass(frozen=True, slots=True)
class Cleared:
    """All blocks are gone."""

    def bounded(self) -> list[Cleared]:
        """It is small."""
        return [self]


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
        """Note a change; one of very many blocks becomes several events."""
        if not self.enabled:
            return
        if len(self._pending) >= _MOST_PENDING:
            self._pending.clear()
        parts = event.bounded()
        self._pending += parts
        self.next_seq += len(parts)

    def drain(self) -> CacheEvents:
        """Everything since the last drain."""
        events, self._pending = self._pending, []
        return CacheEvents(self.epoch, self.next_seq - len(events), events)
