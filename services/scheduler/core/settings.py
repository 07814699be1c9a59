"""Every knob of the scheduler, resolved: no value here means "decide later"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Limits and policies of one scheduler. Names are those of the command line flags."""

    schedule_policy: str = "fcfs"
    max_running_requests: int = 256
    max_queued_requests: int | None = None
    max_prefill_tokens: int = 16384  # per prefill batch; a single longer prompt is still admitted alone
    prefill_max_requests: int | None = None
    chunked_prefill_size: int = 2048  # prompt tokens per step, the most if there is an ITL target; -1 = whole prompts
    enable_mixed_chunk: bool = False
    in_round_prefix_sharing: bool | None = None  # None = with lpm, hrrn and shortest-prefill-first
    prefill_decode_interval: int = 0  # decode steps forced between two prefill steps
    min_free_slots_delay: int = 1  # free places before waiting choices join running ones
    num_continuous_decode_steps: int = 1  # in a row before a waiting prompt is looked at
    itl_target_ms: float | None = None  # chunks shrink to hold this gap between tokens; None = fixed chunks
    least_chunk: int = 16  # but not below this many prompt tokens

    schedule_conservativeness: float = 1.0
    init_new_token_ratio: float = 0.7
    min_new_token_ratio_factor: float = 0.14
    new_token_ratio_decay_steps: int = 600
    clip_max_new_tokens_estimation: int = 4096
    retraction_policy: str = "length"  # length or priority

    disable_radix_cache: bool = False
    radix_eviction_policy: str = "lru"
    radix_eviction_policy_config: Mapping[str, float] = field(default_factory=dict)
    enable_session_radix_cache: bool = False  # what a session used last is evicted last
    strip_thinking_cache: bool = False  # outputs do not enter the prefix cache
    publish_cache_events: bool = True
    cache_epoch: int = 0  # differs between two starts of a worker

    enable_priority_scheduling: bool = False
    schedule_low_priority_values_first: bool = False
    default_priority_value: int = 0
    priority_scheduling_preemption_threshold: int = 10
    disable_priority_preemption: bool = False
    abort_on_priority_when_disabled: bool = False

    req_waiting_timeout_s: float | None = None
    req_running_timeout_s: float | None = None
    disable_overlap_schedule: bool = True
    disable_jump_forward: bool = False
    decode_log_interval: int = 40
    decision_ring_size: int = 512
    policy_seed: int = 0  # for schedule_policy random
