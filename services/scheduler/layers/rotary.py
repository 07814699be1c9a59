"""Rotary position embedding applied to query and key heads."""

from __future__ import annotations

import torch


def rotate(x: torch.Tensor, cos_sin: torch.Tensor) -> torch.Tensor:
    """Rotate heads `x` [T, heads, head_dim] by `cos_sin` [T, head_dim] (cosines, then sines; float32).

    Dimension i is paired with i + head_dim / 2. Computed in float32, returned in the dtype of `x`.
    """
    half = x.shape[-1] // 2
    cos, sin = cos_sin[:, None, :half], cos_sin[:, None, half:]
    first, second = x[..., :half].to(torch.float32), x[..., half:].to(torch.float32)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)
