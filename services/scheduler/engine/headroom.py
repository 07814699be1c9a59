"""Keeps a forward pass from taking memory that is not there.

On a host an allocation hardly ever fails: the kernel grants it and kills the process when the pages are touched. So the
bytes a pass may take are compared beforehand with those left, and a pass that would not fit raises OutOfMemory, which the
scheduler survives.
"""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from services.scheduler.core.plan import IntArray
from services.scheduler.engine.forward_batch import ForwardBatch
from services.scheduler.engine.interface import OutOfMemory
from services.scheduler.engine.runner import ForwardRunner
from services.scheduler.models.config import ModelConfig

log = logging.getLogger(__name__)

_MIB = 1 << 20
_HUGE_PAGE = 2 * _MIB
_RESERVE = 48 * _MIB  # for everything that is no forward pass: messages, queues, the cache's books
_LOOK_AGAIN_NS = 100_000_000
_SAFETY = 2  # the estimate counts the large buffers only


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Bytes of a pass by what makes it large."""

    per_token: int
    per_logits_row: int

    @classmethod
    def of(cls, config: ModelConfig) -> StepCosts:
        """The widest buffers of a layer in float32, and logits twice: as computed, and as the sampler changes them."""
        heads = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
        widths = 2 * config.hidden_size + 2 * heads + 2 * config.intermediate_size
        return cls(per_token=4 * widths * _SAFETY, per_logits_row=4 * config.vocab_size * 2)


class PoolPages:
    """Which parts of the pool have been written. Memory is taken when a slot is first touched, in huge pages per layer."""

    def __init__(self, num_slots: int, bytes_per_slot: int, layers: int) -> None:
        self._slots_each = max(1, _HUGE_PAGE * layers // bytes_per_slot)
        self._bytes_each = self._slots_each * bytes_per_slot
        self._touched = np.zeros(num_slots // self._slots_each + 1, np.bool_)

    def fresh_bytes(self, slots: IntArray) -> int:
        """What writing `slots` takes that was never taken before."""
        pages = np.unique(slots // self._slots_each)
        return int(np.count_nonzero(~self._touched[pages])) * self._bytes_each

    def touch(self, slots: IntArray) -> None:
        """Those slots were written."""
        self._touched[slots // self._slots_each] = True


class Headroom:
    """Compares what a pass needs with what is left. `left` is asked at most ten times a second unless it gets tight."""

    def __init__(self, left: Callable[[], int], costs: StepCosts, pool: PoolPages, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """`left` gives bytes that can be taken now."""
        self._ask, self._costs, self._pool, self._clock = left, costs, pool, clock
        self._left = 0
        self._asked_ns = -_LOOK_AGAIN_NS

    def claim(self, batch: ForwardBatch) -> None:
        """Raise OutOfMemory unless the pass fits; afterwards the pool's part counts as taken."""
        fresh = self._pool.fresh_bytes(batch.out_slots)
        need = fresh + batch.input_ids.size * self._costs.per_token + batch.logits_index.size * self._costs.per_logits_row
        now = self._clock()
        if now - self._asked_ns >= _LOOK_AGAIN_NS or need + _RESERVE > self._left:
            self._look(now)
            if need + _RESERVE > self._left:
                _give_back_unused()
                self._look(now)
        if need + _RESERVE > self._left:
            raise OutOfMemory(
                f"a pass of {batch.input_ids.size} tokens may take {need // _MIB} MiB, {max(0, self._left - _RESERVE) // _MIB} MiB are left"
            )
        self._left -= fresh
        self._pool.touch(batch.out_slots)

    def _look(self, now: int) -> None:
        self._left, self._asked_ns = self._ask(), now


def _give_back_unused() -> None:
    """Return what the allocator keeps for later to the system, where it can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class GuardedRunner:
    """A runner whose passes are claimed beforehand."""

    def __init__(self, runner: ForwardRunner, headroom: Headroom) -> None:
        self._runner, self._headroom = runner, headroom

    @property
    def attention_backend(self) -> str:
        return self._runner.attention_backend

    @property
    def batch_invariant(self) -> bool:
        return self._runner.batch_invariant

    def forward(self, batch: ForwardBatch, req_to_token: torch.Tensor) -> torch.Tensor:
        self._headroom.claim(batch)
        return self._runner.forward(batch, req_to_token)

    def slot_digests(self, slots: IntArray) -> npt.NDArray[np.uint64]:
        return self._runner.slot_digests(slots)

    def close(self) -> None:
        self._runner.close()
