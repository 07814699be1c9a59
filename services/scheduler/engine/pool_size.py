"""How many tokens the KV pool of this worker holds, and which bound decided."""

from __future__ import annotations

from dataclasses import dataclass

from services.common.config import ConfigError
from services.scheduler.config import SchedulerConfig
from services.scheduler.engine.memory import MemoryProvider

_HOST_SHARE = 0.25
_HOST_MOST_BYTES = 4 << 30
_HOST_MOST_CONTEXTS = 64


@dataclass(frozen=True, slots=True)
class PoolSize:
    """`tokens` slots; `reason` names the bound."""

    tokens: int
    reason: str


def size_pool(config: SchedulerConfig, memory: MemoryProvider, before_bytes: int, bytes_per_token: int, context: int) -> PoolSize:
    """The least of all bounds. `before_bytes` was available before the weights were loaded. Raises ConfigError."""
    available = memory.available_bytes()
    bounds: dict[str, int] = {}
    if config.mem_fraction_static is not None:
        fraction = config.mem_fraction_static
        used = before_bytes - available
        bounds[f"--mem-fraction-static {fraction:g}"] = (
            int(min(fraction * memory.total_bytes() - used, fraction * available)) // bytes_per_token
        )
    else:
        bounds["25 % of available memory"] = int(_HOST_SHARE * available) // bytes_per_token
        bounds["4 GiB"] = _HOST_MOST_BYTES // bytes_per_token
        bounds[f"{_HOST_MOST_CONTEXTS} full contexts"] = _HOST_MOST_CONTEXTS * context
    if config.max_total_tokens is not None:
        wanted = config.max_total_tokens
        if wanted <= min(bounds.values()) or config.mem_fraction_static is None:
            bounds = {"--max-total-tokens": wanted}
    reason = min(bounds, key=lambda name: bounds[name])
    tokens = bounds[reason] // config.page_size * config.page_size
    if tokens < config.page_size:
        raise ConfigError(f"no room for a KV pool: {reason} allows {bounds[reason]} tokens of {bytes_per_token} bytes")
    if tokens * bytes_per_token > available:
        raise ConfigError(f"a KV pool of {tokens} tokens takes {tokens * bytes_per_token >> 20} MiB, {available >> 20} MiB are available")
    return PoolSize(tokens, reason)


def max_running(configured: int | None, pool_tokens: int, context: int) -> int:
    """Requests that may run together: pool / context x 512 within 2048..4096, at most half the pool's tokens."""
    if configured is not None:
        return min(configured, pool_tokens)
    return max(1, min(max(2048, min(4096, pool_tokens * 512 // context)), pool_tokens // 2))
