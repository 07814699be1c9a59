"""The gated activation of llama's MLP."""

from __future__ import annotations

import torch

from services.scheduler.kernels.dispatch import resolve_isa


def silu_mul(gate: torch.Tensor, up: torch.Tensor, isa: str | None = None) -> torch.Tensor:
    """silu(gate) * up, float32 [rows, k]; k is a multiple of 16."""
    out: torch.Tensor = torch.ops.headrace_cpu.silu_mul(gate, up, resolve_isa(isa))
    return out


def reference_silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """The same in float64."""
    return torch.nn.functional.silu(gate.double()) * up.double()
