"""How much cache a token needs, and how many contexts fit."""

from __future__ import annotations

from dataclasses import dataclass

ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1}


@dataclass(frozen=True, slots=True)
class CacheShape:
    """The numbers of a model that its key-value cache depends on."""

    layers: int
    kv_heads: int
    head_dim: int

    def bytes_per_token(self, dtype: str) -> int:
        """Keys and values of one token over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * ELEMENT_BYTES[dtype]


@dataclass(frozen=True, slots=True)
class Capacity:
    """A pool against a wish."""

    bytes_per_token: int
    pool_tokens: int
    context_tokens: int
    wanted: int

    @property
    def contexts(self) -> int:
        """Typical contexts that fit at once."""
        return self.pool_tokens // self.context_tokens

    @property
    def enough(self) -> bool:
        return self.contexts >= self.wanted

    @property
    def needed_bytes(self) -> int:
        """Memory for the wanted number of contexts."""
        return self.wanted * self.context_tokens * self.bytes_per_token


def verdict(capacity: Capacity) -> str:
    """The product, and what it means."""
    per_token, pool = capacity.bytes_per_token, capacity.pool_tokens
    lines = [
        f"bytes per token     {per_token:,} = 2 x layers x KV heads x head dim x bytes per element",
        f"pool                {pool:,} tokens = {pool * per_token / 2**30:.2f} GiB",
        f"typical context     {capacity.context_tokens:,} tokens = {capacity.context_tokens * per_token / 2**20:.1f} MiB",
        f"contexts that fit   {capacity.contexts:,} (pool / context)",
        f"wanted at once      {capacity.wanted:,}, which need {capacity.needed_bytes / 2**30:.2f} GiB",
    ]
    if capacity.enough:
        spare = capacity.contexts - capacity.wanted
        lines.append(f"verdict             enough: {spare:,} more would fit, or as many tokens stay cached")
    else:
        lines.append(
            f"verdict             not enough: {capacity.wanted - capacity.contexts:,} requests would wait or be pushed out; "
            f"more memory, shorter contexts, or a limit of {capacity.contexts} running requests"
        )
    return "\n".join(lines)
