"""From settings to parts: everything the gateway is made of, wired once."""

from __future__ import annotations

import random
import time
import uuid
from dataclasses import dataclass

from gateway.api.auth import KeyRing, read_keys
from gateway.api.doors import Doors, DoorSettings
from gateway.api.record import Recorder
from gateway.api.schema.limits import Limits
from gateway.api.sse import StreamKeeper, StreamLimits
from gateway.checking.checker import SchemaChecker
from gateway.clients.pieces import PieceTables
from gateway.clients.text_stage import TextPool
from gateway.clients.tokenizer import TokenizerClient
from gateway.clients.worker_admin import WorkerAdmin
from gateway.clients.worker_pool import WorkerPool
from gateway.config import ADAPTIVE, GatewayConfig
from gateway.instruments import publish_doors, publish_links
from gateway.models import ModelCatalog
from gateway.pipeline import Pipeline, PipelineSettings, Stages
from gateway.prepare import Preparer
from gateway.resilience.admission import Admission, AdmissionSettings
from gateway.resilience.circuit_breaker import BreakerSettings
from gateway.resilience.resume import ResumeSettings
from gateway.resilience.retry import RetryBudget, RetrySettings
from gateway.routing.cache_aware import CacheAwareSettings
from gateway.routing.factory import PolicySettings, make_policy
from gateway.routing.load import BalanceGuard
from gateway.workers.discovery import Discovery, DiscoverySettings
from gateway.workers.fleet import FleetSettings, FleetWatcher
from gateway.workers.health import HealthSettings
from gateway.workers.instruments import publish_caches, publish_discovery, publish_resilience, publish_routing
from gateway.workers.registry import Registry, RegistrySettings
from services.common.config import ConfigError, pod_identity
from services.common.metrics import Metrics
from services.common.prefix_hash import BLOCK_SIZE


@dataclass(frozen=True, slots=True)
class Parts:
    """What runs, and what must be started and closed."""

    doors: Doors
    registry: Registry
    fleet: FleetWatcher
    pool: WorkerPool
    text: TextPool
    tokenizer: TokenizerClient
    discovery: Discovery


def build(config: GatewayConfig, metrics: Metrics) -> Parts:
    """Make all parts; nothing is connected yet. Raises ConfigError."""
    client_id = f"gateway-{uuid.uuid4().hex[:12]}"
    registry = _registry(config)
    text = TextPool(config.detokenizer, client_id=client_id, trust=config)
    models = ModelCatalog(registry)
    tokenizer = TokenizerClient(config.tokenizer, trust=config, hold_s=config.hold_secs, digest_of=models.tokenizer_digest)
    pool = WorkerPool(registry, text, client_id=client_id, trust=config, silence_limit_s=config.worker_stall_secs, metrics=metrics)
    fleet = FleetWatcher(
        registry,
        FleetSettings(HealthSettings(config.health_interval_secs, config.health_timeout_secs, config.health_successes)),
        trust=config,
        subscriber=client_id,
    )
    admission, budget, discovery = _admission(config, registry), RetryBudget(), Discovery(registry, _discovery(config))
    stages = Stages(registry, models, Preparer(tokenizer, models), pool, text, admission, budget)
    pipeline = Pipeline(stages, _pipeline_settings(config))
    publish_routing(metrics, registry)
    publish_caches(metrics, registry, fleet.cache)
    publish_resilience(metrics, budget, pipeline.totals, admission)
    publish_discovery(metrics, discovery.memberships)
    keeper = StreamKeeper(StreamLimits(config.max_unsent_bytes, config.client_stall_secs, config.keepalive_comment_secs))
    publish_doors(metrics, pipeline, models, keeper)
    publish_links(metrics, pool, text, tokenizer)
    doors = Doors(
        settings=_door_settings(config),
        pipeline=pipeline,
        models=models,
        tokenizer=tokenizer,
        text=text,
        pieces=PieceTables(text, models.tokenizer_digest, hold_s=config.hold_secs),
        registry=registry,
        admin=WorkerAdmin(pool, config),
        keeper=keeper,
        recorder=Recorder(metrics),
        keys=_keys(config),
        checker=SchemaChecker(),
    )
    return Parts(doors, registry, fleet, pool, text, tokenizer, discovery)


def _registry(config: GatewayConfig) -> Registry:
    rng = random.Random()
    breaker = BreakerSettings(
        enabled=not config.disable_circuit_breaker,
        failures=config.cb_failure_threshold,
        successes=config.cb_success_threshold,
        open_s=config.cb_timeout_duration_secs,
        window_s=config.cb_window_duration_secs,
    )
    settings = RegistrySettings(breaker=breaker, failure_threshold=config.health_failures, approximate_blocks=config.max_tree_size)
    policies = _policies(config)
    return Registry(settings, lambda model: make_policy(config.policy, policies, time.monotonic, rng), time.monotonic)


def _policies(config: GatewayConfig) -> PolicySettings:
    guard = BalanceGuard(config.balance_abs_threshold, config.balance_rel_threshold)
    return PolicySettings(
        cache_aware=CacheAwareSettings(guard=guard, cache_threshold=config.cache_threshold),
        prefix_blocks=config.prefix_token_count // BLOCK_SIZE,
        prefix_load_factor=config.prefix_hash_load_factor,
        manual_idle_s=config.max_idle_secs,
    )


def _discovery(config: GatewayConfig) -> DiscoverySettings:
    if config.service_discovery and not config.selector:
        raise ConfigError("--service-discovery needs --selector, the labels of the workers' EndpointSlices")
    return DiscoverySettings(
        workers=config.workers,
        dns=config.worker_dns,
        selector=",".join(config.selector) if config.service_discovery else "",
        namespace=config.service_discovery_namespace or pod_identity()[0] or "default",
        port=config.service_discovery_port or None,
        port_name=config.service_discovery_port_name,
        grace_s=config.worker_grace_secs,
    )


def _admission(config: GatewayConfig, registry: Registry) -> Admission:
    wanted = None if config.max_concurrent_requests == ADAPTIVE else config.max_concurrent_requests
    queue_size = None if config.queue_size < 0 else config.queue_size
    rate = (config.rate_limit_tokens_per_second, config.rate_limit_burst)
    settings = AdmissionSettings(wanted, queue_size, config.queue_timeout_secs, *rate, config.processes)
    return Admission(settings, time.monotonic, registry.slots)


def _pipeline_settings(config: GatewayConfig) -> PipelineSettings:
    retry = RetrySettings(
        max_attempts=1 if config.disable_retries else max(1, config.retry_max_retries),
        initial_s=config.retry_initial_backoff_ms / 1000,
        factor=config.retry_backoff_multiplier,
        cap_s=config.retry_max_backoff_ms / 1000,
        resume_patience_s=config.resume_patience_secs,
    )
    resume = ResumeSettings(max_resumes=config.max_resumes, prefills_per_worker=config.resume_prefills_per_worker)
    return PipelineSettings(retry=retry, resume=resume, hold_s=config.hold_secs)


def _door_settings(config: GatewayConfig) -> DoorSettings:
    return DoorSettings(
        limits=Limits(max_choices=config.max_choices, max_logprobs=config.max_logprobs, max_batch=config.max_batch),
        max_body=config.max_body_bytes,
        request_timeout_s=config.request_timeout_secs or None,
        sampling_defaults=config.sampling_defaults,
        default_seed=config.default_seed,
        tool_call_parser=config.tool_call_parser,
        reasoning_parser=config.reasoning_parser,
        incremental_output=config.incremental_streaming_output,
        usage_by_default=config.stream_response_default_include_usage,
        cache_report=config.enable_cache_report,
        isolate_by_key=config.cache_isolation == "api-key",
        shared_port=config.shared_port,
        cors_origins=config.cors_origins,
    )


def _keys(config: GatewayConfig) -> KeyRing:
    user = read_keys([config.api_key] if config.api_key is not None else [], config.api_key_file, "api-key-file")
    admin = read_keys([config.admin_api_key] if config.admin_api_key is not None else [], config.admin_api_key_file, "admin-api-key-file")
    return KeyRing(user, admin)
