"""An engine that remembers what it wrote into every slot, so that a slot changed by anybody else is found."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from services.scheduler.core.plan import IntArray, StepPlan, StepResult
from services.scheduler.engine.interface import Engine, EngineInfo

Digests = npt.NDArray[np.uint64]


class SlotReader(Protocol):
    """What can tell the contents of slots apart."""

    def slot_digests(self, slots: IntArray) -> Digests:
        """[N] one number per slot of `slots` [N], made of all it holds in every layer."""


class CanaryEngine:
    """Passes every call on. After each pass it notes the digests of the slots that were written; `changed` compares."""

    def __init__(self, engine: Engine, reader: SlotReader) -> None:
        self._engine, self._reader = engine, reader
        self._digests: Digests = np.zeros(engine.info.num_slots + 1, np.uint64)
        self._known = np.zeros(engine.info.num_slots + 1, np.bool_)

    @property
    def info(self) -> EngineInfo:
        return self._engine.info

    def launch(self, plan: StepPlan) -> None:
        slots = plan.out_slots[plan.out_slots > 0]
        self._known[slots] = False  # a pass that fails halfway leaves anything behind
        self._engine.launch(plan)
        self._digests[slots] = self._reader.slot_digests(slots)
        self._known[slots] = True

    def sample(self, masks: npt.NDArray[np.int32] | None) -> None:
        self._engine.sample(masks)

    def collect(self) -> StepResult:
        return self._engine.collect()

    def close(self) -> None:
        self._engine.close()

    def known_after(self, slot: int, most: int) -> IntArray:
        """The next `most` slots above `slot` with known contents, ascending."""
        found: IntArray = (np.flatnonzero(self._known[slot + 1 :])[:most] + slot + 1).astype(np.int32)
        return found

    def changed(self, slots: IntArray) -> list[int]:
        """Those of `slots` that no longer hold what was written. Each change is told once."""
        now = self._reader.slot_digests(slots)
        wrong = now != self._digests[slots]
        self._digests[slots] = now
        found: list[int] = slots[wrong].tolist()
        return found
