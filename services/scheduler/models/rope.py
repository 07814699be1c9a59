"""Rotary position embedding: which frequencies a model wants, and the cosine and sine table made of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How a model stretches its rotary frequencies. `kind` is none, linear, llama3 or factors."""

    kind: str = "none"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 8192
    factors: tuple[float, ...] = ()  # kind "factors": one divisor per frequency, as GGUF files store them


def parse_scaling(raw: Mapping[str, Any] | None, max_position: int) -> RopeScaling:
    """Read a Hugging Face `rope_scaling` or `rope_parameters` object. Raises ValueError for kinds not supported.

    `dynamic` scaling changes nothing within `original_max_position_embeddings`, to which the context is then held.
    """
    kind = str((raw or {}).get("rope_type") or (raw or {}).get("type") or "default")
    if not raw or kind in ("default", "none"):
        return RopeScaling()
    if kind == "linear":
        return RopeScaling("linear", factor=float(raw["factor"]))
    if kind == "factors":
        return RopeScaling("factors", factors=tuple(float(value) for value in raw["factors"]))
    if kind == "dynamic":
        return RopeScaling("none", original_max_position=max_position)
    if kind == "llama3":
        return RopeScaling(
            "llama3",
            factor=float(raw["factor"]),
            low_freq_factor=float(raw["low_freq_factor"]),
            high_freq_factor=float(raw["high_freq_factor"]),
            original_max_position=int(raw["original_max_position_embeddings"]),
        )
    raise ValueError(f"config.json: rope scaling {kind!r} is not supported (default, linear, dynamic and llama3 are)")


def inverse_frequencies(head_dim: int, theta: float, scaling: RopeScaling) -> torch.Tensor:
    """Rotation speed of each pair of dimensions, float32 [head_dim / 2], in radians per position."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).to(torch.float32) / head_dim
    freqs = 1.0 / (theta**exponents)
    if scaling.kind == "linear":
        return freqs / scaling.factor
    if scaling.kind == "factors":
        return freqs / torch.tensor(scaling.factors, dtype=torch.float32)
    if scaling.kind == "llama3":
        return _llama3(freqs, scaling)
    return freqs


def _llama3(freqs: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    """Slow frequencies are divided by the factor, fast ones kept, those between are blended."""
    wavelengths = 2 * math.pi / freqs
    longest_kept = scaling.original_max_position / scaling.high_freq_factor
    shortest_scaled = scaling.original_max_position / scaling.low_freq_factor
    share = (scaling.original_max_position / wavelengths - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    blended = (1 - share) * freqs / scaling.factor + share * freqs
    scaled = torch.where(wavelengths > shortest_scaled, freqs / scaling.factor, freqs)
    between = (wavelengths <= shortest_scaled) & (wavelengths >= longest_kept)
    return torch.where(between, blended, scaled)


def cos_sin_table(inv_freq: torch.Tensor, positions: int) -> torch.Tensor:
    """Float32 [positions, head_dim]: cosines of every frequency, then sines."""
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), inv_freq)
    return torch.cat((angles.cos(), angles.sin()), dim=-1)
