"""The flags, completed with what was decided at start, as the scheduler core takes them."""

from __future__ import annotations

import json
from typing import Any

from services.common.config import show
from services.scheduler.config import SchedulerConfig
from services.scheduler.core.settings import SchedulerConfig as CoreConfig
from services.scheduler.engine.interface import EngineInfo
from services.scheduler.report import ReportedSetting, StartupReport

# docs/decisions/0002-prefill-chunks-adapt.md
_ITL_TARGET_MS = 150.0
_LARGEST_CHUNK = 2048  # tokens of a step while nobody decodes: a longer one is no faster
_FIXED_CHUNK = 256
_LEAST_CHUNK = 128  # tokens: on a slow device the default target gives way to throughput below this
_LEAST_ASKED_CHUNK = 16  # a target that was asked for does not


def core_config(config: SchedulerConfig, info: EngineInfo, epoch: int) -> CoreConfig:
    """Resolve what was left open."""
    policy_config: dict[str, Any] = json.loads(config.radix_eviction_policy_config or "{}")
    return CoreConfig(
        schedule_policy=config.schedule_policy,
        max_running_requests=info.max_rows,
        max_queued_requests=config.max_queued_requests,
        max_prefill_tokens=config.max_prefill_tokens,
        prefill_max_requests=config.prefill_max_requests,
        chunked_prefill_size=_chunk(config, info),
        enable_mixed_chunk=_itl_target(config) is not None if config.enable_mixed_chunk is None else config.enable_mixed_chunk,
        prefill_decode_interval=config.prefill_decode_interval,
        min_free_slots_delay=config.min_free_slots_delay,
        num_continuous_decode_steps=config.num_continuous_decode_steps,
        in_round_prefix_sharing=config.in_round_prefix_sharing,
        itl_target_ms=_itl_target(config),
        least_chunk=_LEAST_CHUNK if config.itl_target_ms is None else _LEAST_ASKED_CHUNK,
        schedule_conservativeness=config.schedule_conservativeness,
        init_new_token_ratio=config.init_new_token_ratio,
        min_new_token_ratio_factor=config.min_new_token_ratio_factor,
        new_token_ratio_decay_steps=config.new_token_ratio_decay_steps,
        clip_max_new_tokens_estimation=config.clip_max_new_tokens_estimation,
        retraction_policy=config.retraction_policy,
        disable_radix_cache=config.disable_radix_cache,
        radix_eviction_policy=config.radix_eviction_policy,
        radix_eviction_policy_config=policy_config,
        enable_session_radix_cache=config.enable_session_radix_cache,
        strip_thinking_cache=config.strip_thinking_cache,
        publish_cache_events=not config.disable_cache_events,
        cache_epoch=epoch,
        enable_priority_scheduling=config.enable_priority_scheduling,
        schedule_low_priority_values_first=config.schedule_low_priority_values_first,
        default_priority_value=config.default_priority_value,
        priority_scheduling_preemption_threshold=config.priority_scheduling_preemption_threshold,
        disable_priority_preemption=config.disable_priority_preemption,
        abort_on_priority_when_disabled=config.abort_on_priority_when_disabled,
        req_waiting_timeout_s=config.req_waiting_timeout,
        req_running_timeout_s=config.req_running_timeout,
        disable_overlap_schedule=_overlap_off(config),
        disable_jump_forward=config.disable_jump_forward,
        decode_log_interval=config.decode_log_interval,
        policy_seed=config.random_seed,
    )


def report_flags(report: StartupReport, config: SchedulerConfig, sources: dict[str, str], core: CoreConfig) -> None:
    """Add the scheduler's resolved limits, and every flag with where its value came from."""
    report.add("chunked_prefill_size", core.chunked_prefill_size, unit="tokens")
    adaptive = core.itl_target_ms is not None
    report.add("itl_target_ms", core.itl_target_ms or "off", reason="chunks adapt" if adaptive else "chunks of a fixed size", unit="ms")
    report.add("max_prefill_tokens", core.max_prefill_tokens, unit="tokens")
    report.add("enable_mixed_chunk", core.enable_mixed_chunk)
    report.add("schedule_policy", core.schedule_policy)
    report.add(
        "overlap_schedule",
        not core.disable_overlap_schedule,
        reason=f"the default on {config.device}" if config.disable_overlap_schedule is None else "as asked",
    )
    report.add(
        "deterministic_inference",
        deterministic(config),
        reason=f"--rl-on-policy-target {config.rl_on_policy_target}" if config.rl_on_policy_target else "",
    )
    report.add("radix_cache", "off" if core.disable_radix_cache else core.radix_eviction_policy)
    for name, source in sources.items():
        value = "(set)" if name == "token_file" and config.token_file else show(getattr(config, name))
        report.flags.append(ReportedSetting(name, value, source))


def deterministic(config: SchedulerConfig) -> bool:
    """Whether answers must not depend on their company. Who trains on them needs it."""
    return config.enable_deterministic_inference or config.rl_on_policy_target is not None


def _overlap_off(config: SchedulerConfig) -> bool:
    """On a CPU the cores do both halves: docs/decisions/0005-overlap-is-off-on-a-cpu.md."""
    return config.device == "cpu" if config.disable_overlap_schedule is None else config.disable_overlap_schedule


def _itl_target(config: SchedulerConfig) -> float | None:
    """Chunks adapt unless their size, or no target, was asked for."""
    if config.itl_target_ms is None:
        return _ITL_TARGET_MS if config.chunked_prefill_size is None else None
    return config.itl_target_ms or None


def _chunk(config: SchedulerConfig, info: EngineInfo) -> int:
    """Chunks are whole pages."""
    size = config.chunked_prefill_size
    if size is None:
        size = _FIXED_CHUNK if _itl_target(config) is None else _LARGEST_CHUNK
    return size if size < 0 else max(info.page_size, size // info.page_size * info.page_size)
