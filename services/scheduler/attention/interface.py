"""What a model asks of an attention implementation."""

from __future__ import annotations

from typing import Protocol

import torch

from services.scheduler.engine.forward_batch import ForwardBatch


class AttentionBackend(Protocol):
    """Holds the key/value pool and attends over it. One instance serves one model."""

    @property
    def kv_bytes(self) -> int:
        """Bytes the pool takes."""

    def begin(self, batch: ForwardBatch, req_to_token: torch.Tensor) -> None:
        """Prepare what all layers of a pass share. `req_to_token` is int32 [rows, context]."""

    def forward(self, layer: int, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Store the new keys and values, then attend causally to all tokens of each sequence.

        `query` [T, heads, head_dim], `keys` and `values` [T, kv heads, head_dim], rotated; returns `query`'s shape.
        """
