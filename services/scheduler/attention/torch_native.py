"""Attention with plain PyTorch: gathers each sequence's keys and values. The reference, and the fallback."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from services.scheduler.cache.kv_pool import KVPool
from services.scheduler.engine.forward_batch import ForwardBatch


@dataclass(frozen=True, slots=True)
class _Sequence:
    start: int  # first token in the flat batch
    end: int
    slots: torch.Tensor  # [sequence length] int64
    mask: torch.Tensor | None  # [new, sequence length] True = may attend; None = all


class TorchNativeAttention:
    """Scaled dot product attention, one sequence at a time, over slots gathered through the request table."""

    def __init__(self, pool: KVPool) -> None:
        self._pool = pool
        self._sequences: list[_Sequence] = []
        self._out_slots = torch.empty(0, dtype=torch.int64)

    @property
    def kv_bytes(self) -> int:
        return self._pool.num_bytes

    def begin(self, batch: ForwardBatch, req_to_token: torch.Tensor) -> None:
        device = self._pool.keys.device
        self._out_slots = torch.from_numpy(batch.out_slots).to(device, torch.int64)
        self._sequences = []
        starts = batch.starts.tolist()
        for row, start, new, length in zip(batch.rows.tolist(), starts, batch.extend_lens.tolist(), batch.seq_lens.tolist(), strict=True):
            slots = req_to_token[row, :length].to(torch.int64)
            self._sequences.append(_Sequence(start, start + new, slots, _causal(new, length, device)))

    def forward(self, layer: int, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        self._pool.write(layer, self._out_slots, keys, values)
        out = torch.empty_like(query)
        for seq in self._sequences:
            cached_keys = self._pool.keys[layer].index_select(0, seq.slots)
            cached_values = self._pool.values[layer].index_select(0, seq.slots)
            attended = F.scaled_dot_product_attention(
                query[seq.start : seq.end].transpose(0, 1)[None],
                cached_keys.transpose(0, 1)[None],
                cached_values.transpose(0, 1)[None],
                attn_mask=seq.mask,
                enable_gqa=query.shape[1] != keys.shape[1],
            )
            out[seq.start : seq.end] = attended[0].transpose(0, 1)
        return out


def _causal(new: int, length: int, device: torch.device) -> torch.Tensor | None:
    """New token i sits at position length - new + i and sees all positions up to its own."""
    if new == 1:
        return None
    own = torch.arange(length - new, length, device=device)
    return torch.arange(length, device=device)[None, :] <= own[:, None]
