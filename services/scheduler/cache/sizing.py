"""How large the KV pool may be: plain arithmetic over bytes that the caller measured."""

from __future__ import annotations

MIB = 1 << 20
GIB = 1 << 30
_UNKNOWN_FRACTION = 0.95
_LARGE_DEVICE = 60 * GIB
_LARGE_RESERVE = 10 * GIB


class NoRoom(ValueError):
    """The weights leave nothing for the pool."""


def bytes_per_token(layers: int, kv_heads: int, head_dim: int, itemsize: int) -> int:
    """Keys and values of one token."""
    return 2 * layers * kv_heads * head_dim * itemsize


def latent_bytes_per_token(layers: int, latent_dim: int, rope_dim: int, itemsize: int) -> int:
    """One latent and its position part per layer (multi-head latent attention); every rank keeps all of it."""
    return layers * (latent_dim + rope_dim) * itemsize


def default_chunk(device_bytes: int | None) -> int:
    """`--chunked-prefill-size` where none was given, by the size of the device."""
    if device_bytes is None:
        return 4096
    for limit, chunk in ((20, 2048), (60, 4096), (160, 8192)):
        if device_bytes < limit * GIB:
            return chunk
    return 16384


def static_fraction(
    device_bytes: int | None,
    chunk: int,
    *,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    decode_batch: int = 0,
    prefill_buckets: int = 0,
) -> float:
    """`--mem-fraction-static` where none was given: what is left for weights and pool, rounded to 3 digits.

    The reserve is 512 MiB, 1.5 MiB per token of a chunk (of 2048 at least), 128 MiB per rank, 2 MiB per row of the
    largest captured decode batch and 8 MiB per captured prefill size; on devices above 60 GiB at least 10 GiB.
    """
    if device_bytes is None:
        return _UNKNOWN_FRACTION
    ranks = tensor_parallel * pipeline_parallel
    reserve = MIB * (512 + 1.5 * max(chunk, 2048) + ranks / 8 * 1024 + 2 * decode_batch + 8 * prefill_buckets)
    if device_bytes > _LARGE_DEVICE:
        reserve = max(reserve, _LARGE_RESERVE)
    return round(1 - reserve / device_bytes, 3)


def device_budget(free_before: int, free_after: int, fraction: float) -> int:
    """Bytes for the pool after the weights were loaded. Raises NoRoom with the smallest fraction that works."""
    budget = int(free_after - (1 - fraction) * free_before)
    if budget <= 0:
        smallest = 1 - free_after / free_before + 0.001
        raise NoRoom(f"mem_fraction_static {fraction:g} leaves no memory for the KV pool; the smallest that works is {smallest:.3f}")
    return budget


def host_budget(working_set: int, used: int, available: int, fraction: float) -> int:
    """Bytes for the pool on a device that shares memory with the host: the smaller of its own and the host's share."""
    budget = int(min(fraction * working_set - used, fraction * available))
    if budget <= 0:
        raise NoRoom(f"mem_fraction_static {fraction:g} leaves no memory for the KV pool beside {used / GIB:.2f} GiB in use")
    return budget


def pool_tokens(budget: int, bytes_of_token: int, page_size: int = 1, most: int | None = None) -> int:
    """Whole pages of tokens that fit, at most `most`. Raises NoRoom if not even one page does."""
    tokens = budget // bytes_of_token
    if most is not None:
        tokens = min(tokens, most)
    tokens = tokens // page_size * page_size
    if tokens < page_size:
        raise NoRoom(f"{budget} bytes hold {budget // bytes_of_token} tokens, a page has {page_size}")
    return tokens


def slots_for(tokens: int, page_size: int) -> int:
    """Slots, the padding slot not counted, of a pool that holds `tokens` in whole pages: padding takes the first page."""
    return tokens // page_size * page_size + page_size - 1


def default_max_running(tokens: int, context_length: int) -> int:
    """`--max-running-requests` where none was given: 512 per context that fits, between 2048 and 4096, at most half the pool."""
    return max(1, min(max(2048, min(4096, int(tokens / context_length * 512))), tokens // 2))
