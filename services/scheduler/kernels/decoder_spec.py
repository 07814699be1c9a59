"""The shape of a llama-like decoder, as the native step needs it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from services.scheduler.kernels.errors import UnsupportedShape

GROUP = 32  # numbers that share a scale in int8


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """Dimensions of the model; `rope_cos` and `rope_sin` are float32 [max_context, head_dim / 2] when rope is scaled."""

    num_layers: int
    hidden: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    rms_eps: float
    rope_theta: float
    max_context: int
    tie_embeddings: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    rope_cos: torch.Tensor | None = None
    rope_sin: torch.Tensor | None = None

    def rope_tables(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine of every position, float32 [max_context, head_dim / 2]."""
        if self.rope_cos is not None and self.rope_sin is not None:
            return self.rope_cos.float().contiguous(), self.rope_sin.float().contiguous()
        exponents = torch.arange(0, self.head_dim, 2, dtype=torch.float32) / self.head_dim
        angles = torch.outer(torch.arange(self.max_context, dtype=torch.float32), 1.0 / self.rope_theta**exponents)
        return angles.cos().contiguous(), angles.sin().contiguous()

    def check(self, quantization: str) -> None:
        """Raises `UnsupportedShape` for dimensions that the kernels' 16-lane strips cannot hold."""
        unit = GROUP if quantization == "int8" else 16
        widths = {
            "hidden": self.hidden,
            "intermediate": self.intermediate,
            "num_heads * head_dim": self.num_heads * self.head_dim,
        }
        for name, width in widths.items():
            if width % unit:
                raise UnsupportedShape(f"{name} = {width} is not a multiple of {unit}")
        if self.head_dim % 16 or not 32 <= self.head_dim <= 256:
            raise UnsupportedShape(f"head_dim = {self.head_dim} is not a multiple of 16 from 32 to 256")
        if self.num_heads % self.num_kv_heads:
            raise UnsupportedShape(f"num_heads = {self.num_heads} is not a multiple of num_kv_heads = {self.num_kv_heads}")
