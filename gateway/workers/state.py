"""The state of a worker, derived from what has been heard of it.

Session and health are watched independently; either may know first. Nothing else decides, so two watchers cannot disagree
about a state for longer than one message.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class WorkerState(StrEnum):
    PENDING = "pending"
    READY = "ready"
    NOT_READY = "not_ready"
    DRAINING = "draining"
    FAILED = "failed"


@dataclass(slots=True)
class Signals:
    """What has been heard.

    session: a Session is open. serving: the health service's last word, None if it has not spoken or cannot be heard.
    failures: attempts to reach it in a row that failed. incompatible: it speaks another version of the protocol.
    drained: why we send it nothing new; leaving: why it wants nothing new itself, which its next boot forgets.
    """

    session: bool = False
    ever_open: bool = False
    serving: bool | None = None
    failures: int = 0
    incompatible: bool = False
    last_error: str = ""
    drained: str = ""
    leaving: str = ""

    def opened(self) -> None:
        """A Session was opened: whatever an earlier boot has said no longer holds."""
        self.session = self.ever_open = True
        self.failures = 0
        self.incompatible = False
        self.last_error = self.leaving = ""

    def lost(self, reason: str) -> None:
        """The Session has ended, or could not be opened."""
        self.session = False
        self.leaving = ""
        self.last_error = reason


def derive(signals: Signals, failure_threshold: int) -> tuple[WorkerState, str]:
    """State and, for people, why."""
    if signals.drained:
        return WorkerState.DRAINING, signals.drained
    if signals.session:
        if signals.leaving:
            return WorkerState.DRAINING, signals.leaving
        if signals.serving is False:
            return WorkerState.NOT_READY, "its health service says not serving"
        return WorkerState.READY, "session open"
    if signals.incompatible or signals.failures >= failure_threshold:
        return WorkerState.FAILED, signals.last_error or "not reachable"
    if signals.ever_open:
        return WorkerState.NOT_READY, signals.last_error or "session lost"
    return WorkerState.PENDING, signals.last_error or "not reached yet"
