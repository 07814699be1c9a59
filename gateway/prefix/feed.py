"""Applies what one worker publishes of its cache to the tree, and notices when something is missing.

A snapshot comes first, changes after it, all numbered. What was seen already is skipped, what leaves a gap is not applied:
the subscription has to begin again, and until its snapshot is complete the last known contents stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.prefix.tree import PrefixTree


@dataclass(frozen=True, slots=True)
class Stored:
    """The worker now holds these blocks in the tier."""

    hashes: Sequence[int]
    tier: int


@dataclass(frozen=True, slots=True)
class Removed:
    """The tier no longer has these blocks."""

    hashes: Sequence[int]
    tier: int


@dataclass(frozen=True, slots=True)
class Cleared:
    """The worker holds nothing any more."""


Event = Stored | Removed | Cleared


@dataclass(frozen=True, slots=True)
class Update:
    """One frame. `snapshot` is None in frames of changes; `seq` is the number of the first of `events`, or of the next.

    index: place of this part among the parts of its snapshot, of which the last one has `last`.
    """

    epoch: int
    seq: int
    events: Sequence[Event] = ()
    snapshot: Sequence[Stored] | None = None
    index: int = 0
    last: bool = False


class WorkerFeed:
    """One subscription to one worker. Make a new one whenever the subscription begins again."""

    def __init__(self, tree: PrefixTree, worker_id: str) -> None:
        self._tree = tree
        self._worker_id = worker_id
        self._epoch = 0
        self._next_seq = 0
        self._parts = 0
        self._building = False
        self.synced = False

    def apply(self, update: Update) -> bool:
        """False if frames are missing: subscribe again."""
        if update.snapshot is not None:
            return self._snapshot(update, update.snapshot)
        if self._building or not self.synced:
            return not update.events and not self._building
        if update.epoch != self._epoch or update.seq > self._next_seq or not self._tree.follows(self._worker_id):
            return False
        for event in update.events[self._next_seq - update.seq :]:
            self._change(event)
        self._next_seq = max(self._next_seq, update.seq + len(update.events))
        return True

    def close(self) -> None:
        """The subscription has ended; an unfinished snapshot is dropped."""
        if self._building:
            self._building = False
            self._tree.abandon_snapshot(self._worker_id)

    def _snapshot(self, update: Update, parts: Sequence[Stored]) -> bool:
        if not self._building:
            if update.index or self.synced:
                return self.synced and update.epoch == self._epoch and update.seq <= self._next_seq
            self._tree.begin_snapshot(self._worker_id)
            self._building, self._parts = True, 0
            self._epoch, self._next_seq = update.epoch, update.seq
        elif (update.epoch, update.seq) != (self._epoch, self._next_seq) or update.index > self._parts:
            return False
        for part in parts:
            self._tree.snapshot(self._worker_id, part.hashes, part.tier)
        self._parts = max(self._parts, update.index + 1)
        if update.last:
            self._tree.end_snapshot(self._worker_id)
            self._building, self.synced = False, True
        return True

    def _change(self, event: Event) -> None:
        if isinstance(event, Stored):
            self._tree.stored(self._worker_id, event.hashes, event.tier)
        elif isinstance(event, Removed):
            self._tree.removed(self._worker_id, event.hashes, event.tier)
        else:
            self._tree.cleared(self._worker_id)
