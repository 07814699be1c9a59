"""Load and limits as the contract spells them."""

from __future__ import annotations

from protos.scheduler.v1 import scheduler_pb2 as pb
from services.scheduler.core.messages import LoadSnapshot


def load_message(load: LoadSnapshot, last_turn_age_s: float) -> pb.Load:
    """One load report."""
    limits = load.limits
    message = pb.Load(
        running=load.running,
        waiting=load.waiting,
        waiting_prefill_tokens=load.waiting_prefill_tokens,
        grammar_waiting=load.grammar_waiting,
        retracted=load.retracted,
        kv_used_tokens=load.kv_used_tokens,
        kv_total_tokens=load.kv_total_tokens,
        kv_evictable_tokens=load.kv_evictable_tokens,
        prefill_tokens_per_s=load.prefill_tokens_per_s,
        decode_step_ms=load.decode_step_ms,
        last_turn_age_ms=int(last_turn_age_s * 1000),
        new_token_ratio=load.new_token_ratio,
        generation_tokens_per_s=load.generation_tokens_per_s,
        kv_protected_tokens=load.kv_used_tokens,
        limits=pb.Limits(
            max_running_requests=limits.max_running_requests,
            max_prefill_tokens=limits.max_prefill_tokens,
            chunked_prefill_size=max(0, limits.chunked_prefill_size),
            context_tokens=limits.context_tokens,
            pool_tokens=limits.pool_tokens,
        ),
    )
    if limits.max_queued_requests is not None:
        message.limits.max_queued_requests = limits.max_queued_requests
    return message
