"""Products with packed weights: float32, bfloat16, and int8 activations with 8-bit or exact 4-bit weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from services.scheduler.kernels.dispatch import resolve_isa

Kind = Literal["f32", "bf16", "i8", "i4"]
GROUP = 32  # numbers along k that share a scale


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A weight [n, k] in strips of 16 columns of the product; `data` is opaque bytes."""

    data: torch.Tensor
    n: int
    k: int
    kind: Kind
    isa: str


def fits_i4(weight: torch.Tensor, isa: str | None = None) -> bool:
    """Whether each 32 numbers of a row lie on at most 16 evenly spaced levels, so that `i4` loses nothing."""
    return bool(torch.ops.headrace_cpu.gemm_fits_i4(weight, resolve_isa(isa)))


def pack(weight: torch.Tensor, kind: Kind, isa: str | None = None) -> PackedWeight:
    """Packs float32 or bfloat16 [n, k]; k is a multiple of 16 (32 for i8 and i4). `i4` demands `fits_i4`."""
    chosen = resolve_isa(isa)
    if kind == "i4" and not fits_i4(weight, isa):
        raise ValueError("weight does not lie on a 4-bit grid")
    data = torch.ops.headrace_cpu.gemm_pack(weight, kind, chosen)
    return PackedWeight(data, weight.shape[0], weight.shape[1], kind, chosen)


def gemm(x: torch.Tensor, weight: PackedWeight, wide: bool = False) -> torch.Tensor:
    """float32 [rows, k] times weight^T -> float32 [rows, n], on the calling thread.

    `wide` gives i8 and i4 weights activations of 16 bits instead of 8.
    """
    out: torch.Tensor = torch.ops.headrace_cpu.gemm(x, weight.data, weight.n, weight.kind, wide, weight.isa)
    return out


def quantize(x: torch.Tensor, levels: int = 127) -> torch.Tensor:
    """x as integers up to `levels` with a scale for each 32 numbers hold it, in float32."""
    groups = x.reshape(-1, GROUP)
    scale = groups.abs().amax(-1, keepdim=True) / levels
    integers = torch.where(scale > 0, groups / scale, 0.0).round()
    return (integers * scale).reshape(x.shape)


def quantize_weight(weight: torch.Tensor) -> torch.Tensor:
    """The weight as `i8` holds it: as `quantize`, with scales rounded to float16."""
    groups = weight.float().reshape(-1, GROUP)
    scale = (groups.abs().amax(-1, keepdim=True) / 127).half().float()
    levels = torch.where(scale > 0, groups / scale, 0.0).round().clamp(-127, 127)
    return (levels * scale).reshape(weight.shape)


def reference_gemm(x: torch.Tensor, weight: torch.Tensor, kind: Kind, wide: bool = False) -> torch.Tensor:
    """What `gemm` computes, in float64."""
    if kind == "bf16":
        x, weight = x.bfloat16(), weight.bfloat16()
    elif kind in ("i8", "i4"):
        x = quantize(x, 127 * 128 if wide else 127)
        weight = quantize_weight(weight) if kind == "i8" else weight
    return x.double() @ weight.double().T
