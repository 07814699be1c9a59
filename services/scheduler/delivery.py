"""What the event loop tells the engine, and what it hears from it: the same messages whether that is a thread or a process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from services.scheduler.cache.events import CacheEvents, CacheSnapshot
from services.scheduler.core.counters import Counters
from services.scheduler.core.decisions import Decision
from services.scheduler.core.messages import LoadSnapshot, SubmitRequest, TurnOutput
from services.scheduler.engine.interface import EngineInfo
from services.scheduler.report import StartupReport


@dataclass(frozen=True, slots=True)
class Submit:
    """A new request."""

    request: SubmitRequest


@dataclass(frozen=True, slots=True)
class Cancel:
    """End a choice; unknown handles are ignored."""

    handle: int
    cause: int


@dataclass(frozen=True, slots=True)
class Update:
    """Change a live choice; None leaves a value as it is. `deadline_ns` is a reading of the monotonic clock."""

    handle: int
    priority: int | None = None
    deadline_ns: int | None = None


Message = Submit | Cancel | Update


@dataclass(frozen=True, slots=True)
class Delivery:
    """What one turn said, in the order things happened."""

    output: TurnOutput
    events: CacheEvents | None
    mode: str | None  # prefill, decode or mixed; None if no step ran


@dataclass(frozen=True, slots=True)
class EngineState:
    """What changes without being said in a delivery."""

    load: LoadSnapshot
    counters: Counters
    evicted_tokens: int
    eviction_ns: int
    turn_age_s: float


@dataclass(frozen=True, slots=True)
class Facts:
    """What is fixed once the model is loaded."""

    info: EngineInfo
    architecture: str
    publishes_blocks: bool
    report: StartupReport


class EngineClient(Protocol):
    """The event loop's side of the engine. Neither side ever waits for the other."""

    @property
    def load(self) -> LoadSnapshot | None:
        """The load a moment ago; None while the model is loading."""

    @property
    def counters(self) -> Counters: ...

    @property
    def evicted_tokens(self) -> int: ...

    @property
    def eviction_ns(self) -> int:
        """Time spent on evictions since the start."""

    async def start(self) -> Facts:
        """Load the model and begin to turn. Raises ConfigError where the settings cannot be served."""

    def send(self, *messages: Message) -> None:
        """Hand messages to the scheduler's next turn, in order."""

    def turn_age_s(self) -> float:
        """Seconds since the last turn ended while work is pending; 0 when idle."""

    def dump_stacks(self) -> None:
        """Write the stacks of the engine's threads to standard error, where this process's own dump lacks them."""

    async def decisions(self, count: int) -> Sequence[Decision]:
        """The newest decisions, newest last."""

    async def cache_snapshot(self) -> CacheSnapshot:
        """All cached blocks."""

    async def flush_cache(self) -> int | None:
        """Empty the prefix cache; the number of tokens it held, or None while choices live."""

    async def stop(self) -> None:
        """Let the current turn end and give everything back."""
