"""Puts the scheduler's parts together."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from services.common.prefix_hash import root_hash
from services.scheduler.cache.events import EventLog
from services.scheduler.cache.eviction import make_policy
from services.scheduler.cache.groups import CacheGroup
from services.scheduler.cache.interface import PrefixCache
from services.scheduler.cache.kv_cache import KvCache
from services.scheduler.cache.no_cache import NoCache
from services.scheduler.cache.radix_cache import RadixCache
from services.scheduler.cache.sessions import Sessions
from services.scheduler.core.batch import Batch
from services.scheduler.core.chunk_pace import ChunkPace
from services.scheduler.core.counters import Counters
from services.scheduler.core.decisions import DecisionRing
from services.scheduler.core.engine_changes import EngineChanges
from services.scheduler.core.log_lines import LogLine
from services.scheduler.core.memory_bound import MemoryBound
from services.scheduler.core.messages import Namespace
from services.scheduler.core.new_token_ratio import NewTokenRatio
from services.scheduler.core.queue import WaitingQueue
from services.scheduler.core.settings import SchedulerConfig
from services.scheduler.core.state import State
from services.scheduler.core.turn_output import OutputBuilder
from services.scheduler.core.wait_forecast import WaitForecast
from services.scheduler.engine.interface import EngineInfo

_LEAST_CHUNK = 16  # tokens: no step is made smaller than that for want of device memory


def build_state(
    config: SchedulerConfig, info: EngineInfo, events: EventLog, clock: Callable[[], int], log: Callable[[LogLine], None]
) -> State:
    """Everything at its beginning. Raises ValueError for a configuration that names no known policy, or contradicts itself."""
    preempts = config.enable_priority_scheduling and not config.disable_priority_preemption
    if preempts and config.min_free_slots_delay > 1:
        raise ValueError("min_free_slots_delay: a place freed for a higher priority would be kept free: disable_priority_preemption")
    policy = make_policy(config.radix_eviction_policy, config.radix_eviction_policy_config, info.page_size)
    sessions = Sessions() if config.enable_session_radix_cache else None
    prefixes: PrefixCache = (
        NoCache() if config.disable_radix_cache else RadixCache(policy, _root_hash(info), events, info.page_size, sessions=sessions)
    )
    group = CacheGroup("full", info.num_slots, info.max_rows, info.context_length, info.page_size)
    return State(
        config=config,
        info=info,
        clock=clock,
        log=log,
        cache=KvCache([group], prefixes, info.max_rows),
        batch=Batch(info.max_rows, info.context_length),
        queue=WaitingQueue(),
        ratio=NewTokenRatio(
            config.init_new_token_ratio,
            config.schedule_conservativeness,
            config.min_new_token_ratio_factor,
            config.new_token_ratio_decay_steps,
        ),
        changes=EngineChanges(),
        output=OutputBuilder(),
        counters=Counters(),
        decisions=DecisionRing(config.decision_ring_size),
        waits=WaitForecast(),
        pace=ChunkPace(),
        live={},
        places_bound=MemoryBound(min(config.max_running_requests, info.max_rows), 1),
        prompt_bound=MemoryBound(_longest_step(config, info), max(_LEAST_CHUNK, info.page_size)),
    )


def _longest_step(config: SchedulerConfig, info: EngineInfo) -> int:
    """Prompt tokens of the longest step: a chunk, or what a batch of whole prompts may have."""
    chunk = config.chunked_prefill_size
    return max(chunk, info.page_size) if chunk >= 0 else max(config.max_prefill_tokens, info.context_length)


def _root_hash(info: EngineInfo) -> Callable[[Hashable], int]:
    def of(namespace: Hashable) -> int:
        assert isinstance(namespace, Namespace)
        return root_hash(info.model_digest, namespace.adapter, namespace.cache_salt, namespace.extra_key)

    return of
