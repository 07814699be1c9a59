"""What executes forward passes: the PyTorch model, or a native decoder."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from services.scheduler.core.plan import IntArray
from services.scheduler.engine.forward_batch import ForwardBatch


class ForwardRunner(Protocol):
    """Computes logits and keeps keys and values of all slots."""

    @property
    def attention_backend(self) -> str: ...

    @property
    def batch_invariant(self) -> bool:
        """Whether a row's logits are bitwise the same in any batch and for any split of its prompt."""

    def forward(self, batch: ForwardBatch, req_to_token: torch.Tensor) -> torch.Tensor:
        """Float32 logits [L, vocab]. `req_to_token` is int32 [rows, context]. Raises OutOfMemory."""

    def slot_digests(self, slots: IntArray) -> npt.NDArray[np.uint64]:
        """[N] one number per slot of `slots` [N], made of its keys and values in every layer."""

    def close(self) -> None: ...
