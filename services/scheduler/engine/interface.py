"""The line below which tensors begin: what the scheduler asks of an engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from services.scheduler.core.plan import StepPlan, StepResult


class OutOfMemory(Exception):
    """A forward pass did not fit; nothing of the step happened and the engine can go on."""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """Facts fixed when the engine was built."""

    model_name: str
    model_digest: str
    vocab_size: int
    context_length: int
    num_slots: int  # pool size in tokens; slots 1..num_slots are usable, slot 0 is padding
    max_rows: int  # rows 1..max_rows are usable
    page_size: int
    bytes_per_token: int
    dtype: str
    quantization: str
    attention_backend: str
    batch_invariant: bool
    eos_token_ids: tuple[int, ...]
    weight_bytes: int = 0  # of the tensors the engine computes with; 0 without tensors
    kv_cache_bytes: int = 0  # of the pool's tensors, the padding slot included


class Engine(Protocol):
    """Three calls per step, back to back without overlap: `launch(plan)`, `sample(masks)`, `collect()`.

    All calls come from one thread. Under overlap `launch(N + 1)` and `sample(N + 1)` may precede `collect()` of N;
    results are collected in launch order.
    """

    @property
    def info(self) -> EngineInfo: ...

    def launch(self, plan: StepPlan) -> None:
        """Apply the plan's table and row changes and start its forward pass. Raises OutOfMemory before any effect on requests."""

    def sample(self, masks: npt.NDArray[np.int32] | None) -> None:
        """Sample the launched step. `masks`: [S, ceil(vocab/32)] bitmask of allowed ids (bit i of word i // 32), or None."""

    def collect(self) -> StepResult:
        """Wait for the oldest step that was launched and sampled, and return its result."""

    def close(self) -> None:
        """Release device memory and threads."""
