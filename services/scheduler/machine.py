"""What runs in the engine thread: an engine, and the scheduler that feeds it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from services.common.config import ConfigError
from services.scheduler.cache.sizing import slots_for
from services.scheduler.config import SchedulerConfig
from services.scheduler.constraints import make_desk
from services.scheduler.core.scheduler import Scheduler
from services.scheduler.delivery import Facts
from services.scheduler.engine.canary import CanaryEngine
from services.scheduler.engine.interface import Engine, EngineInfo
from services.scheduler.engine.script import load_script
from services.scheduler.engine.scripted import ScriptedEngine
from services.scheduler.engine_client import Built
from services.scheduler.grammar.desk import GrammarDesk
from services.scheduler.grammar.warm import warm
from services.scheduler.kv_canary import KvCanary
from services.scheduler.logit_processors.registry import LogitProcessors, load_processors
from services.scheduler.report import StartupReport
from services.scheduler.resolve import core_config, deterministic, report_flags
from services.scheduler.text_stops import TextStops

if TYPE_CHECKING:
    from services.scheduler.engine.torch_engine import TorchEngine  # imports torch

log = logging.getLogger(__name__)

_SCRIPTED_POOL_TOKENS = 65536
_SCRIPTED_ROWS = 256


@dataclass(frozen=True, slots=True)
class Texts:
    """What a worker makes of requests: stop texts become matchers, constraints grammars; logit processors are found by name."""

    stops: TextStops
    grammars: GrammarDesk
    processors: LogitProcessors


@dataclass(frozen=True, slots=True)
class Machine:
    """Everything that is there once the model is loaded."""

    built: Built
    texts: Texts


def build_machine(config: SchedulerConfig, sources: dict[str, str], epoch: int, report: StartupReport) -> Machine:
    """Load the model (or the script) and put the scheduler on it. Raises ConfigError."""
    engine, architecture = _engine(config, report)
    info = engine.info
    if deterministic(config) and not info.batch_invariant:
        asked = "--enable-deterministic-inference" if config.enable_deterministic_inference else "--rl-on-policy-target"
        raise ConfigError(
            f"{asked}: answers of the {info.attention_backend} path depend on their batch; "
            "the native CPU kernels' do not (--attention-backend cpu says why they are not in use)"
        )
    with report.phase("tokenizer"):
        texts = load_texts(config, info)
    core = core_config(config, info, epoch)
    report_flags(report, config, sources, core)
    try:
        scheduler = Scheduler(core, engine, log=lambda line: log.info(str(line)))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    log.info(str(scheduler.cache_line(_cache_source(sources))))
    canary = _canary(config, engine, scheduler)
    facts = Facts(info, architecture, core.publish_cache_events and not core.disable_radix_cache, report)
    sweep = canary.sweep if canary else lambda: None
    return Machine(Built(scheduler, engine, facts, sweep, config.scheduler_recv_interval), texts)


def _cache_source(sources: dict[str, str]) -> str:
    """Where the kind of prefix cache came from: default, unless a flag about it was set."""
    chosen = (sources.get(name, "default") for name in ("disable_radix_cache", "radix_eviction_policy"))
    return next((source for source in chosen if source != "default"), "default")


def load_texts(config: SchedulerConfig, info: EngineInfo) -> Texts:
    """The tokenizer's bytes, and the desk for constraints with those compiled that shall be. Raises ConfigError."""
    stops = _text_stops(config)
    grammars = make_desk(
        config.grammar_backend,
        stops.tokens,
        _tokenizer_path(config),
        info.vocab_size,
        info.eos_token_ids,
        any_whitespace=not config.constrained_json_disable_any_whitespace,
        max_whitespace=config.constrained_json_max_whitespace_cnt,
        compile_limit_s=config.grammar_compile_timeout,
    )
    if config.warm_schemas is not None:
        warm(grammars.store, Path(config.warm_schemas))
    return Texts(stops, grammars, load_processors(config.enable_custom_logit_processor, config.logit_processors))


def _canary(config: SchedulerConfig, engine: Engine, scheduler: Scheduler) -> KvCanary | None:
    if not isinstance(engine, CanaryEngine):
        return None
    counters = scheduler.counters

    def count() -> None:
        counters.kv_corrupt_slots += 1

    return KvCanary(engine, scheduler.slot_owners, count, mode=config.kv_canary, interval_s=config.kv_canary_sweep_interval)


def _watched(config: SchedulerConfig, engine: ScriptedEngine | TorchEngine) -> Engine:
    """The engine, with the canary's notes if it is asked for."""
    return engine if config.kv_canary == "none" else CanaryEngine(engine, engine)


def _engine(config: SchedulerConfig, report: StartupReport) -> tuple[Engine, str]:
    if config.load_format == "scripted":
        if config.enable_custom_logit_processor:
            raise ConfigError("--enable-custom-logit-processor: the scripted engine has no logits")
        return _watched(config, _scripted(config, report)), "scripted"
    if config.model_path is None:
        raise ConfigError("--model-path: a Hugging Face folder or a .gguf file is needed")
    if not Path(config.model_path).exists():
        raise ConfigError(f"--model-path: {config.model_path}: no such file or folder")
    with report.phase("import torch"):  # seconds, and the scripted engine does without
        from services.scheduler.engine.build import build_engine
        from services.scheduler.engine.memory import HostMemory
    built = build_engine(config, Path(config.model_path), HostMemory(), report)
    return _watched(config, built.engine), built.architecture


def _scripted(config: SchedulerConfig, report: StartupReport) -> ScriptedEngine:
    try:
        script = load_script(Path(config.script) if config.script else None)
    except ValueError as error:
        raise ConfigError(f"--script: {error}") from error
    wanted = config.max_total_tokens or _SCRIPTED_POOL_TOKENS
    pool = wanted // config.page_size * config.page_size
    if not pool:
        raise ConfigError(f"--max-total-tokens: {wanted} are less than a page of --page-size")
    rows = min(config.max_running_requests or _SCRIPTED_ROWS, pool)
    engine = ScriptedEngine(script, num_slots=slots_for(pool, config.page_size), max_rows=rows, page_size=config.page_size)
    report.add("model", engine.info.model_name)
    report.add("context_len", engine.info.context_length, unit="tokens")
    report.add("max_total_num_tokens", pool, unit="tokens")
    report.add("max_running_requests", rows)
    return engine


def _text_stops(config: SchedulerConfig) -> TextStops:
    path = _tokenizer_path(config)
    return TextStops.load(path) if path is not None else TextStops(None, "")


def _tokenizer_path(config: SchedulerConfig) -> Path | None:
    path = config.tokenizer_path or config.model_path
    return Path(path) if path is not None else None
