"""Random weights for a real configuration: to measure speed and to test without a download."""

from __future__ import annotations

import zlib

import torch

from services.scheduler.models.config import ModelConfig
from services.scheduler.weights.names import expected_shapes


class DummyCheckpoint:
    """Seeded by tensor name, so two workers with the same configuration hold the same weights."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self._shapes = expected_shapes(config)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._shapes))

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name]

    def sample(self, name: str) -> bytes:
        return f"dummy:{name}".encode()

    def read(self, name: str) -> torch.Tensor:
        shape = self._shapes[name]
        if name.endswith("norm.weight"):
            return torch.ones(shape)
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        return torch.randn(shape, generator=generator) * 0.02
