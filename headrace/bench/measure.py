"""One measured run from a configuration: requests, warm-up, load, figures."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from headrace.bench.arrivals import schedule
from headrace.bench.backends.grpc_door import GrpcBackend
from headrace.bench.backends.http import ChatBackend, CompletionsBackend, NativeBackend
from headrace.bench.backends.interface import Backend
from headrace.bench.config import BenchConfig
from headrace.bench.datasets.build import Tokenizer, build, load_tokenizer, warm_up
from headrace.bench.goodput import parse_targets
from headrace.bench.record import BenchRequest, Outcome
from headrace.bench.report import Circumstances
from headrace.bench.runner import run
from headrace.bench.server import ServerFacts, discover, flush_cache, grpc_target, http_url
from headrace.bench.settings import Sending
from headrace.bench.summary import Summary, summarize
from services.common.version import VERSION

_SHOWN_SETTINGS = (
    *("dtype", "quantization", "attention_backend", "cpu_threads", "max_total_num_tokens", "radix_cache"),
    *("chunked_prefill_size", "itl_target_ms", "max_running_requests", "schedule_policy", "overlap_schedule"),
)
_HIDDEN_FLAGS = ("api_key", "output", "output_file", "quiet", "output_details", "png")


@dataclass(frozen=True, slots=True)
class Measurement:
    """A finished run: the figures, their circumstances, and every outcome."""

    config: BenchConfig
    summary: Summary
    about: Circumstances
    outcomes: list[Outcome]
    server: dict[str, Any]
    started_unix: float


async def measure(config: BenchConfig, progress: Callable[[float, float], None] = lambda done, whole: None) -> Measurement:
    """Run it. `progress`: told how many of how many requests have ended. Raises ConfigError for what cannot be measured."""
    targets = parse_targets(config.goodput)
    tokenizer = load_tokenizer(config.tokenizer)
    requests = build(config, tokenizer)
    facts = await discover(config)
    await _throw_away(config, facts, warm_up(config, tokenizer) if config.warmup_requests else [])
    if config.flush_cache:
        await flush_cache(config)
    times = schedule(requests, config.request_rate, config.burstiness, config.seed)
    started = time.time()
    zero = time.perf_counter()
    backend = make_backend(config, facts, zero, requests)
    try:
        done = await run(backend, requests, times, config.max_concurrency, zero, progress)
    finally:
        await backend.close()
    summary = summarize(done.outcomes, targets)
    tokens = max(summary.output_tokens, 1)
    about = Circumstances(
        backend=config.backend,
        url=grpc_target(config) if config.backend == "grpc" else http_url(config),
        model=facts.model,
        server_version=facts.version,
        client_version=f"headrace {VERSION}",
        dataset=config.dataset_name,
        rate="inf" if math.isinf(config.request_rate) else f"{config.request_rate:g}",
        concurrency_cap=config.max_concurrency,
        seed=config.seed,
        flags=changed_flags(config),
        targets=targets,
        own_cpu_us_per_token=1e6 * done.cpu_s / tokens,
        own_cpu_share=done.cpu_s / done.wall_s,
        server_flags=server_flags(facts.settings),
        retokenized=_retokenize(done.outcomes, tokenizer),
    )
    return Measurement(config, summary, about, done.outcomes, facts.settings, started)


def make_backend(config: BenchConfig, facts: ServerFacts, clock_zero: float, requests: Sequence[BenchRequest]) -> Backend:
    """The backend of the configuration; texts are kept only where somebody needs them."""
    keep = config.output_details or bool(config.tokenizer) or any(request.conversation is not None for request in requests)
    sending = Sending(
        model=facts.model,
        temperature=config.temperature,
        ignore_eos=not config.disable_ignore_eos,
        api_key=config.api_key,
        timeout_s=config.timeout,
        keep_text=keep,
        clock_zero=clock_zero,
        extra_body=json.loads(config.extra_request_body or "{}"),
    )
    if config.backend == "grpc":
        return GrpcBackend(grpc_target(config), sending)
    doors: dict[str, Callable[[str, Sending], Backend]] = {
        "native": NativeBackend,
        "openai": CompletionsBackend,
        "openai-chat": ChatBackend,
    }
    return doors[config.backend](http_url(config), sending)


def changed_flags(config: BenchConfig) -> str:
    """Flags that differ from their defaults, as they would be typed."""
    words = []
    for field in fields(config):
        value = getattr(config, field.name)
        if field.name not in _HIDDEN_FLAGS and value != field.default:
            shown = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
            words.append(f"--{field.name.replace('_', '-')} {shown}")
    return " ".join(words) or "none"


async def _throw_away(config: BenchConfig, facts: ServerFacts, requests: Sequence[BenchRequest]) -> None:
    if not requests:
        return
    backend = make_backend(config, facts, time.perf_counter(), ())
    try:
        await run(backend, requests, [0.0] * len(requests), config.max_concurrency, time.perf_counter())
    finally:
        await backend.close()


def _retokenize(outcomes: Sequence[Outcome], tokenizer: Tokenizer | None) -> int | None:
    """Tokens of the received text; differs from the server's count where chunks hold several tokens or special ones."""
    if tokenizer is None:
        return None
    return sum(len(tokenizer.encode(outcome.text).ids) for outcome in outcomes if outcome.ok)


def server_flags(info: dict[str, Any]) -> str:
    """The settings of the first worker that change results, from what our own server says about itself; else empty."""
    workers = info.get("workers")
    first = workers[0] if isinstance(workers, list) and workers and isinstance(workers[0], dict) else info
    settings = first.get("settings", first)
    if isinstance(settings, list):
        settings = {str(s.get("name")): s.get("value") for s in settings if isinstance(s, dict)}
    return ", ".join(f"{name} {settings[name]}" for name in _SHOWN_SETTINGS if isinstance(settings, dict) and name in settings)
