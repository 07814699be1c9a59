"""Root-mean-square normalization of rows."""

from __future__ import annotations

import torch

from services.scheduler.kernels.dispatch import resolve_isa


def rmsnorm(x: torch.Tensor, weight: torch.Tensor, eps: float, isa: str | None = None) -> torch.Tensor:
    """float32 [rows, k] -> float32 [rows, k]; k is a multiple of 16."""
    out: torch.Tensor = torch.ops.headrace_cpu.rmsnorm(x, weight, eps, resolve_isa(isa))
    return out


def reference_rmsnorm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """The same in float64."""
    wide = x.double()
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.double()
