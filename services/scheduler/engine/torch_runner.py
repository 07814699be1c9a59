"""Forward passes through the PyTorch model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from services.scheduler.attention.registry import create_attention
from services.scheduler.cache.kv_pool import KVPool
from services.scheduler.core.plan import IntArray
from services.scheduler.engine.forward_batch import ForwardBatch
from services.scheduler.engine.interface import OutOfMemory
from services.scheduler.engine.slot_digest import slot_digests
from services.scheduler.models.config import ModelConfig
from services.scheduler.models.decoder import Decoder


class TorchRunner:
    """The reference path: any device PyTorch knows, and the fallback where there is no compiler.

    PyTorch's matrix products sum in another order for another number of rows, so results are not batch invariant.
    """

    batch_invariant = False

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, torch.Tensor],
        *,
        attention_backend: str,
        dtype: torch.dtype,
        device: torch.device,
        num_slots: int,
        context_length: int,
    ) -> None:
        self.attention_backend = attention_backend
        self._pool = KVPool(config, num_slots, dtype, device)
        self.weight_bytes = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
        self.kv_cache_bytes = self._pool.num_bytes
        self._decoder = Decoder(config, weights, create_attention(attention_backend, self._pool), context_length)

    def forward(self, batch: ForwardBatch, req_to_token: torch.Tensor) -> torch.Tensor:
        try:
            return self._decoder.forward(batch, req_to_token)
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise OutOfMemory(str(error)) from error
        except RuntimeError as error:
            if "not enough memory" in str(error) or "can't allocate memory" in str(error):
                raise OutOfMemory(str(error)) from error
            raise

    def slot_digests(self, slots: IntArray) -> npt.NDArray[np.uint64]:
        return slot_digests([self._pool.keys[:, slot], self._pool.values[:, slot]] for slot in slots.tolist())

    def close(self) -> None:
        return None
