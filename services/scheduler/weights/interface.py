"""What a checkpoint on disk offers, whatever its file format."""

from __future__ import annotations

from typing import Protocol

import torch

from services.scheduler.models.config import ModelConfig


class WeightError(ValueError):
    """A checkpoint cannot be read, or its tensors are not those the model needs. The message names them."""


class Checkpoint(Protocol):
    """Named tensors and the model they describe. Names are Hugging Face's (`model.layers.0.mlp.up_proj.weight`)."""

    @property
    def config(self) -> ModelConfig: ...

    def names(self) -> tuple[str, ...]:
        """All tensor names, in a fixed order."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor without reading it."""

    def sample(self, name: str) -> bytes:
        """A few bytes of a tensor as stored, for the model digest."""

    def read(self, name: str) -> torch.Tensor:
        """One tensor in the precision it is stored in, or float32 where it was quantized."""
