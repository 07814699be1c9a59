"""Attention backends of the PyTorch model, by name."""

from __future__ import annotations

from collections.abc import Callable

from services.scheduler.attention.interface import AttentionBackend
from services.scheduler.attention.torch_native import TorchNativeAttention
from services.scheduler.cache.kv_pool import KVPool

_BACKENDS: dict[str, Callable[[KVPool], AttentionBackend]] = {"torch_native": TorchNativeAttention}


def create_attention(name: str, pool: KVPool) -> AttentionBackend:
    """Build backend `name` over `pool`. Raises ValueError naming the ones there are."""
    if name not in _BACKENDS:
        raise ValueError(f"attention backend {name!r} is not one of {', '.join(_BACKENDS)}")
    return _BACKENDS[name](pool)
