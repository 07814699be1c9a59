"""What the parts of the scheduler share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from services.scheduler.cache.kv_cache import KvCache
from services.scheduler.core.batch import Batch
from services.scheduler.core.choice import Choice
from services.scheduler.core.chunk_pace import ChunkPace
from services.scheduler.core.counters import Counters
from services.scheduler.core.decisions import DecisionRing
from services.scheduler.core.engine_changes import EngineChanges
from services.scheduler.core.log_lines import LogLine
from services.scheduler.core.memory_bound import MemoryBound
from services.scheduler.core.new_token_ratio import NewTokenRatio
from services.scheduler.core.plan import IntArray
from services.scheduler.core.queue import WaitingQueue
from services.scheduler.core.settings import SchedulerConfig
from services.scheduler.core.turn_output import OutputBuilder
from services.scheduler.core.wait_forecast import WaitForecast
from services.scheduler.engine.interface import EngineInfo


@dataclass(slots=True)
class State:
    """Every choice is in `live`; it waits in `queue`, or has a row of `batch`. `chunked` is the one whose prompt
    is only partly planned. The bounds are at their configured values unless device memory ran out."""

    config: SchedulerConfig
    info: EngineInfo
    clock: Callable[[], int]
    log: Callable[[LogLine], None]
    cache: KvCache
    batch: Batch
    queue: WaitingQueue
    ratio: NewTokenRatio
    changes: EngineChanges
    output: OutputBuilder
    counters: Counters
    decisions: DecisionRing
    waits: WaitForecast
    pace: ChunkPace
    live: dict[int, Choice]
    places_bound: MemoryBound  # choices that run together
    prompt_bound: MemoryBound  # prompt tokens of one step
    chunked: Choice | None = None

    @property
    def occupied(self) -> int:
        """Choices that hold a row."""
        return len(self.batch) + (self.chunked is not None)

    @property
    def running_bound(self) -> int:
        """Most choices that may hold a row."""
        return self.places_bound.value

    @property
    def chunk_bound(self) -> int:
        """Most prompt tokens of one step; -1 for whole prompts."""
        return -1 if self.config.chunked_prefill_size < 0 and not self.prompt_bound.is_lowered else self.prompt_bound.value

    def has_room_for(self, rows: IntArray) -> bool:
        """Does the pool have what the rows' next decode step takes?"""
        return self.cache.fits(self.cache.pages_up_to(rows, self.batch.next_ends(rows)))

    @property
    def token_usage(self) -> float:
        return self.cache.used_tokens / self.cache.capacity

    def decide(self, kind: str, choice: Choice | None = None, reason: str = "", **numbers: float) -> None:
        """Remember a decision."""
        request_id, handle = (choice.request.request_id, choice.handle) if choice else ("", -1)
        self.decisions.add(self.clock(), kind, request_id, handle, reason, **numbers)
