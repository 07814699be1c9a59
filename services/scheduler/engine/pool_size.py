"""How many tokens the KV pool of this worker holds, and which bound decided."""

from __future__ import annotations

from dataclasses import dataclass

from services.common.config import ConfigError
from services.scheduler.cache.sizing import GIB, NoRoom, default_max_running, host_budget, pool_tokens
from services.scheduler.config import SchedulerConfig
from services.scheduler.engine.memory import MemoryProvider

_HOST_SHARE = 0.25
_HOST_MOST_BYTES = 4 * GIB
_HOST_MOST_CONTEXTS = 64


@dataclass(frozen=True, slots=True)
class PoolSize:
    """`tokens` slots; `reason` names the bound."""

    tokens: int
    reason: str


def size_pool(config: SchedulerConfig, memory: MemoryProvider, before_bytes: int, bytes_per_token: int, context: int) -> PoolSize:
    """The least of all bounds. `before_bytes` was available before the weights were loaded. Raises ConfigError.

    A number of tokens that was asked for replaces the bounds nobody asked for, and must fit into memory.
    """
    available = memory.available_bytes()
    try:
        bounds = _bounds(config, memory, before_bytes - available, available, bytes_per_token, context)
        reason = min(bounds, key=lambda name: bounds[name])
        tokens = pool_tokens(bounds[reason] * bytes_per_token, bytes_per_token, config.page_size)
    except NoRoom as error:
        raise ConfigError(f"no room for a KV pool: {error}") from error
    if tokens * bytes_per_token > available:
        raise ConfigError(f"a KV pool of {tokens} tokens takes {tokens * bytes_per_token >> 20} MiB, {available >> 20} MiB are available")
    return PoolSize(tokens, reason)


def _bounds(
    config: SchedulerConfig, memory: MemoryProvider, used: int, available: int, bytes_per_token: int, context: int
) -> dict[str, int]:
    """Tokens by the name of what bounds them."""
    fraction, wanted = config.mem_fraction_static, config.max_total_tokens
    bounds: dict[str, int] = {}
    if fraction is not None:
        budget = host_budget(memory.total_bytes(), used, available, fraction)
        bounds[f"--mem-fraction-static {fraction:g}"] = budget // bytes_per_token
    elif wanted is None:
        bounds["25 % of available memory"] = int(_HOST_SHARE * available) // bytes_per_token
        bounds["4 GiB"] = _HOST_MOST_BYTES // bytes_per_token
        bounds[f"{_HOST_MOST_CONTEXTS} full contexts"] = _HOST_MOST_CONTEXTS * context
    if wanted is not None:
        bounds["--max-total-tokens"] = wanted
    return bounds


def max_running(configured: int | None, tokens: int, context: int) -> int:
    """Requests that may run together: as asked for, at most one per token of the pool; else by pool and context."""
    return default_max_running(tokens, context) if configured is None else min(configured, tokens)
