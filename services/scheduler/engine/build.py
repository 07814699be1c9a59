"""From a path and flags to an engine: open, choose a path, load, size the pool, build."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

import torch

from services.common.config import ConfigError, cache_dir, cpu_isa
from services.scheduler.cache.sizing import slots_for
from services.scheduler.config import SchedulerConfig
from services.scheduler.engine.headroom import GuardedRunner, Headroom, PoolPages, StepCosts
from services.scheduler.engine.interface import EngineInfo
from services.scheduler.engine.memory import MemoryProvider
from services.scheduler.engine.native_runner import NativeRunner, decoder_spec
from services.scheduler.engine.pool_size import PoolSize, max_running, size_pool
from services.scheduler.engine.precision import Precision, PrecisionError, choose
from services.scheduler.engine.runner import ForwardRunner
from services.scheduler.engine.torch_engine import TorchEngine
from services.scheduler.engine.torch_runner import TorchRunner
from services.scheduler.kernels import dispatch
from services.scheduler.kernels.errors import KernelsUnavailable, UnsupportedShape
from services.scheduler.logit_processors.registry import load_processors
from services.scheduler.models.config import ModelConfig
from services.scheduler.report import StartupReport
from services.scheduler.weights.digest import model_digest
from services.scheduler.weights.interface import WeightError
from services.scheduler.weights.loader import load_weights, open_checkpoint

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BuiltEngine:
    """The engine and what a worker says about it."""

    engine: TorchEngine
    architecture: str


def build_engine(config: SchedulerConfig, path: Path, memory: MemoryProvider, report: StartupReport) -> BuiltEngine:
    """The model at `path`. Raises ConfigError with what is wrong; `report` gains phases and every computed value."""
    try:
        return _build(config, path, memory, report)
    except (WeightError, PrecisionError) as error:
        raise ConfigError(str(error)) from error


def _build(config: SchedulerConfig, path: Path, memory: MemoryProvider, report: StartupReport) -> BuiltEngine:
    processors = load_processors(config.enable_custom_logit_processor, config.logit_processors)
    before = memory.available_bytes()
    with report.phase("open checkpoint"):
        checkpoint = open_checkpoint(path, config.load_format)
        digest = model_digest(checkpoint)
    context = _context(config, checkpoint.config)
    threads = config.cpu_threads or len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    with report.phase("kernels"):
        native, path_reason = _use_native(config, checkpoint.config, context)
    precision = choose(config.dtype, config.quantization, native=native, digest=digest, cache_dir=cache_dir())
    with report.phase("load weights"):
        weights = load_weights(checkpoint, precision.dtype)
    bytes_per_token = checkpoint.config.kv_bytes_per_token(precision.dtype.itemsize)
    pool = size_pool(config, memory, before, bytes_per_token, context)
    slots = slots_for(pool.tokens, config.page_size)
    with report.phase("build engine"):
        runner: NativeRunner | TorchRunner
        if native:
            runner = NativeRunner(
                checkpoint.config,
                weights,
                dtype=precision.dtype,
                quantization=precision.quantization,
                num_threads=threads,
                num_slots=slots,
                context_length=context,
                isa=cpu_isa(),
            )
        else:
            runner = TorchRunner(
                checkpoint.config,
                weights,
                attention_backend="torch_native",
                dtype=precision.dtype,
                device=torch.device(config.device),
                num_slots=slots,
                context_length=context,
            )
        del weights
    info = EngineInfo(
        model_name=config.served_model_name or path.stem,
        model_digest=digest,
        vocab_size=checkpoint.config.vocab_size,
        context_length=context,
        num_slots=slots,
        max_rows=max_running(config.max_running_requests, pool.tokens, context),
        page_size=config.page_size,
        bytes_per_token=bytes_per_token,
        dtype=precision.dtype_name,
        quantization=precision.quantization,
        attention_backend=runner.attention_backend,
        batch_invariant=runner.batch_invariant,
        eos_token_ids=checkpoint.config.eos_token_ids,
        weight_bytes=runner.weight_bytes,
        kv_cache_bytes=runner.kv_cache_bytes,
    )
    _report(report, info, runner, precision, pool, path_reason, threads, memory)
    engine = TorchEngine(info, _guarded(runner, checkpoint.config, info, memory), processors)
    return BuiltEngine(engine, checkpoint.config.architecture)


def _guarded(runner: ForwardRunner, model: ModelConfig, info: EngineInfo, memory: MemoryProvider) -> GuardedRunner:
    """The runner, held to the memory that is left."""
    pages = PoolPages(info.num_slots, info.bytes_per_token, model.num_layers)
    return GuardedRunner(runner, Headroom(memory.spare_bytes, StepCosts.of(model), pages))


def _context(config: SchedulerConfig, model: ModelConfig) -> int:
    """The model's context, or the shorter one asked for."""
    if config.context_length is None:
        return model.max_position
    if config.context_length > model.max_position:
        raise ConfigError(f"--context-length: {config.context_length} is beyond the model's {model.max_position} tokens")
    return config.context_length


def _use_native(config: SchedulerConfig, model: ModelConfig, context: int) -> tuple[bool, str]:
    """Whether the native decoder runs this model here, and why (not). With `--attention-backend cpu` it must."""
    if config.attention_backend == "torch_native":
        return False, "--attention-backend torch_native"
    if config.dtype == "float16":
        reason = "the native kernels compute in float32 and bfloat16, not float16"
    else:
        try:
            decoder_spec(model, context).check("int8" if config.quantization == "int8" else "none")
            dispatch.load(cache_dir(), progress=lambda line: log.info(line))
            return True, "native kernels"
        except (KernelsUnavailable, UnsupportedShape) as error:
            reason = str(error).splitlines()[0]
            log.debug("native kernels are not available", extra={"reason": str(error)})
    if config.attention_backend == "cpu":
        raise ConfigError(f"--attention-backend cpu: {reason}")
    log.warning("plain PyTorch instead of native kernels", extra={"reason": reason})
    return False, reason


def _report(
    report: StartupReport,
    info: EngineInfo,
    runner: NativeRunner | TorchRunner,
    precision: Precision,
    pool: PoolSize,
    path_reason: str,
    threads: int,
    memory: MemoryProvider,
) -> None:
    path = f"native, {runner.isa}" if isinstance(runner, NativeRunner) else "PyTorch"
    report.add("model", info.model_name)
    report.add("model_digest", info.model_digest)
    report.add("dtype", info.dtype)
    report.add("quantization", info.quantization, reason=precision.reason)
    report.add("attention_backend", info.attention_backend, reason=f"{path}: {path_reason}")
    report.add("batch_invariant", info.batch_invariant)
    report.add("cpu_threads", threads)
    report.add("context_len", info.context_length, unit="tokens")
    report.add("bytes_per_token", info.bytes_per_token, unit="bytes")
    report.add("max_total_num_tokens", pool.tokens, reason=pool.reason, unit="tokens")
    report.add("kv_pool", f"{info.kv_cache_bytes / 2**20:.0f}", unit="MiB")
    report.add("max_running_requests", info.max_rows)
    report.add("available_memory", f"{memory.available_bytes() / 2**20:.0f}", unit="MiB")
