"""`headrace capacity`: does the cache fit the wish?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.capacity import ELEMENT_BYTES, CacheShape, Capacity, verdict
from headrace.models.catalog import DEFAULT_MODEL
from headrace.models.errors import ModelError
from headrace.models.resolve import resolve
from headrace.models.store import ModelStore
from services.common.config import ConfigError, at_least, cache_dir, count, load_or_exit, option

_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def memory(text: str) -> int:
    """Bytes of `4GiB`, `4g`, `512M` or a plain number."""
    digits = text.lower().removesuffix("ib").removesuffix("b")
    scale = _UNITS.get(digits[-1:], 1)
    return int(float(digits[:-1] if scale > 1 else digits) * scale)


@dataclass(frozen=True)
class CapacityConfig:
    """A model, a pool, and what is wanted of it."""

    model: str = option(DEFAULT_MODEL, "model whose config.json gives the shape", group="Model")
    layers: int | None = option(None, "layers, in place of the model's", group="Model", check=at_least(1))
    kv_heads: int | None = option(None, "key-value heads, in place of the model's", group="Model", check=at_least(1))
    head_dim: int | None = option(None, "dimension of a head, in place of the model's", group="Model", check=at_least(1))
    dtype: str = option("bfloat16", "precision of the cache", group="Model", choices=tuple(ELEMENT_BYTES))
    memory: int = option(4 * 2**30, "memory for the cache (4GiB and 512M are understood)", unit="bytes", group="Pool", parse=memory)
    max_total_tokens: int | None = option(None, "size of the pool, in place of --memory", unit="tokens", group="Pool", parse=count)
    context: int = option(2048, "tokens of a typical request and its answer", unit="tokens", group="Wish", parse=count, check=at_least(1))
    concurrency: int = option(32, "requests that should run at once", group="Wish", check=at_least(1))


def main(argv: Sequence[str]) -> int:
    """Print the calculation. Exit code 0 if it fits, 1 if not, 2 for unusable flags."""
    config, _ = load_or_exit(CapacityConfig, argv, prog="headrace capacity", description="How many contexts fit into the cache.")
    try:
        shape = shape_of(config)
    except (ConfigError, ModelError) as error:
        print(f"headrace capacity: {error}")
        return 2
    per_token = shape.bytes_per_token(config.dtype)
    capacity = Capacity(per_token, config.max_total_tokens or config.memory // per_token, config.context, config.concurrency)
    print(verdict(capacity))
    return 0 if capacity.enough else 1


def shape_of(config: CapacityConfig) -> CacheShape:
    """From flags where all three are given, else from the model's config.json."""
    if config.layers and config.kv_heads and config.head_dim:
        return CacheShape(config.layers, config.kv_heads, config.head_dim)
    file = resolve(config.model, ModelStore(cache_dir()), print).folder / "config.json"
    found = shape_from(json.loads(file.read_text()))
    return CacheShape(config.layers or found.layers, config.kv_heads or found.kv_heads, config.head_dim or found.head_dim)


def shape_from(raw: dict[str, Any]) -> CacheShape:
    """The shape in a Hugging Face config. Raises ConfigError naming what is missing."""
    try:
        heads = int(raw["num_attention_heads"])
        return CacheShape(
            layers=int(raw["num_hidden_layers"]),
            kv_heads=int(raw.get("num_key_value_heads") or heads),
            head_dim=int(raw.get("head_dim") or int(raw["hidden_size"]) // heads),
        )
    except KeyError as missing:
        raise ConfigError(f"config.json lacks {missing}") from None
