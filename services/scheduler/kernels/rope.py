"""Rotary positions, with the write of keys and values into the pool."""

from __future__ import annotations

import torch

from services.scheduler.kernels.dispatch import resolve_isa


def rope(
    qkv: torch.Tensor,
    positions: torch.Tensor,
    out_slots: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    kv: torch.Tensor,
    *,
    q_norm: torch.Tensor | None = None,
    k_norm: torch.Tensor | None = None,
    eps: float = 1e-6,
    isa: str | None = None,
) -> torch.Tensor:
    """Rotated queries [tokens, heads, head_dim] in kv's dtype; rotated keys and the values go to `out_slots` of kv.

    qkv is float32 [tokens, (heads + 2 kv_heads) * head_dim] and is overwritten when there are head norms; cos and sin
    are float32 [context, head_dim / 2]; kv is [slots, 2, kv_heads, head_dim].
    """
    q: torch.Tensor = torch.ops.headrace_cpu.rope(*(qkv, positions, out_slots, cos, sin, kv, q_norm, k_norm, eps, resolve_isa(isa)))
    return q


def reference_rope(
    qkv: torch.Tensor,
    positions: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    kv_heads: int,
    *,
    q_norm: torch.Tensor | None = None,
    k_norm: torch.Tensor | None = None,
    eps: float = 1e-6,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(queries [tokens, heads, head_dim], keys and values [tokens, 2, kv_heads, head_dim]) in float64."""
    dim = 2 * cos.shape[1]
    heads = qkv.double().reshape(len(qkv), qkv.shape[1] // dim, dim)
    q, k, v = torch.split(heads, [heads.shape[1] - 2 * kv_heads, kv_heads, kv_heads], dim=1)
    c, s = cos[positions.long()].double()[:, None], sin[positions.long()].double()[:, None]

    def rotate(x: torch.Tensor, norm: torch.Tensor | None) -> torch.Tensor:
        if norm is not None:
            x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * norm.double()
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * c - b * s, b * c + a * s), dim=-1)

    return rotate(q, q_norm), torch.stack((rotate(k, k_norm), v), dim=1)
