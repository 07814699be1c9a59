"""The tensors that hold keys and values of every slot."""

from __future__ import annotations

import numpy as np
import torch

from services.scheduler.models.config import ModelConfig


class KVPool:
    """Key and value of `num_slots` + 1 tokens for every layer; slot 0 takes the writes of padding.

    Layout [layers, slots, kv heads, head_dim] is private to the pool and the attention backends that use it.
    """

    def __init__(self, config: ModelConfig, num_slots: int, dtype: torch.dtype, device: torch.device) -> None:
        shape = (config.num_layers, num_slots + 1, config.num_kv_heads, config.head_dim)
        self.keys = _zeros(shape, dtype, device)
        self.values = _zeros(shape, dtype, device)

    @property
    def num_bytes(self) -> int:
        """Bytes of both tensors, the padding slot included."""
        return 2 * self.keys.numel() * self.keys.element_size()

    def write(self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Store `keys` and `values` [T, kv heads, head_dim] into `slots` [T]."""
        self.keys[layer].index_copy_(0, slots, keys)
        self.values[layer].index_copy_(0, slots, values)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros; on a CPU without touching the pages, so that an unused pool costs no memory and no time."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    raw = np.zeros(int(np.prod(shape)) * dtype.itemsize, np.uint8)
    return torch.from_numpy(raw).view(dtype).view(shape)
