"""Causal attention of new tokens over keys and values at scattered slots."""

from __future__ import annotations

import torch

from services.scheduler.kernels.dispatch import resolve_isa


def attention(
    q: torch.Tensor,
    kv: torch.Tensor,
    row_index: torch.Tensor,
    extend_lens: torch.Tensor,
    seq_lens: torch.Tensor,
    req_to_token: torch.Tensor,
    *,
    scale: float,
    tile: int = 32,
    split: bool = False,
    isa: str | None = None,
) -> torch.Tensor:
    """float32 [tokens, heads * head_dim], on the calling thread.

    q is [tokens, heads, head_dim] and kv [slots, 2, kv_heads, head_dim], both float32 or both bfloat16; the others
    are int32 as in `CpuDecoder.forward`. `tile` (query tokens computed together) and `split` (single queries block by
    block) change how the work is cut, and no bit of the result.
    """
    out: torch.Tensor = torch.ops.headrace_cpu.attention(
        *(q, kv, row_index, extend_lens, seq_lens, req_to_token, scale, tile, split, resolve_isa(isa))
    )
    return out


def reference_attention(
    q: torch.Tensor,
    kv: torch.Tensor,
    row_index: torch.Tensor,
    extend_lens: torch.Tensor,
    seq_lens: torch.Tensor,
    req_to_token: torch.Tensor,
    *,
    scale: float,
) -> torch.Tensor:
    """The same in float64, sequence by sequence."""
    out = torch.zeros(q.shape, dtype=torch.float64)
    group = q.shape[1] // kv.shape[2]
    first = 0
    for row, extend, length in zip(row_index.tolist(), extend_lens.tolist(), seq_lens.tolist(), strict=True):
        cached = kv[req_to_token[row, :length].long()].double()
        keys, values = (cached[:, i].repeat_interleave(group, dim=1) for i in (0, 1))
        queries = q[first : first + extend].double()
        scores = torch.einsum("qhd,khd->hqk", queries, keys) * scale
        hidden = torch.arange(length)[None] > torch.arange(length - extend, length)[:, None]
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        out[first : first + extend] = torch.einsum("hqk,khd->qhd", weights, values)
        first += extend
    return out.flatten(1)
