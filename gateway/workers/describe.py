"""A worker as the admin API shows it."""

from __future__ import annotations

from typing import Any

from gateway.workers.lease import Outcome
from gateway.workers.registry import Registry
from gateway.workers.worker import Worker


def describe(registry: Registry, worker: Worker) -> dict[str, Any]:
    """JSON-ready: identity, state and why, load, cache and breaker. process_id only for workers on this machine."""
    info, load = worker.info, worker.load
    tree = registry.group(worker.model).index.tree if worker.model is not None else None
    shown: dict[str, Any] = {
        "id": worker.id,
        "url": worker.address,
        "source": worker.source,
        "model": worker.model,
        "state": worker.state.value,
        "state_reason": worker.state_reason,
        "is_healthy": worker.is_ready,
        "in_flight": worker.in_flight.requests,
        "outcomes": {outcome.value: registry.outcomes[worker.id, outcome] for outcome in Outcome},
        "load": {
            "running": load.running,
            "waiting": load.waiting,
            "waiting_prefill_tokens": load.waiting_prefill_tokens,
            "prefill_tokens_per_s": load.prefill_tokens_per_s,
            "generation_tokens_per_s": load.generation_tokens_per_s,
            "decode_step_ms": 1000 * load.decode_step_s,
        },
        "cache": {
            "published": tree is not None and tree.follows(worker.id),
            "blocks": tree.blocks_of(worker.id) if tree is not None else 0,
            "used_tokens": load.kv_used_tokens,
            "total_tokens": load.kv_total_tokens,
            "recent_hit_rate": worker.recent_hits.rate,
            "recent_prompt_tokens": round(worker.recent_hits.prompt_tokens),
            "recent_cached_tokens": round(worker.recent_hits.cached_tokens),
        },
        "breaker": worker.breaker.state.value,
    }
    if info is not None:
        shown |= {
            "model_digest": info.identity.model_digest,
            "weight_version": info.identity.weight_version,
            "boot_id": info.boot_id,
            "quantization": info.quantization,
            "batch_invariant": info.batch_invariant,
            "context_tokens": info.context_tokens,
        }
    if info is not None and info.process_id and _is_local(worker.address):
        shown["process_id"] = info.process_id
    return shown


def _is_local(address: str) -> bool:
    return address.startswith(("127.", "localhost:", "[::1]:"))
