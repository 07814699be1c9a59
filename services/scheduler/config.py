"""Flags of the scheduler-worker, under the names SGLang's users know. None means "decide at start"."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from services.common.config import at_least, count, option
from services.common.server_config import ServerConfig

POLICIES = ("fcfs", "lof", "random", "lpm", "dfs-weight", "hrrn", "shortest-prefill-first")
EVICTIONS = ("lru", "lfu", "fifo", "mru", "slru", "priority", "tlru")


def _fraction(value: float | None) -> str | None:
    return None if value is None or 0 < value <= 1 else "must be above 0 and at most 1"


def _chunk(value: int | None) -> str | None:
    return None if value is None or value == -1 or value > 0 else "must be positive, or -1 to turn chunking off"


def _only(value: bool, why: str) -> Callable[[bool], str | None]:
    return lambda given: None if given is value else why


def _json_object(value: str | None) -> str | None:
    try:
        return None if value is None or isinstance(json.loads(value), dict) else "must be a JSON object"
    except ValueError as error:
        return f"is not JSON: {error}"


@dataclass(frozen=True)
class ModelOptions(ServerConfig):
    """Which model, in what precision, on what device."""

    port: int = option(30100, "port of the gRPC server; 0 takes a free one", group="Network", check=at_least(0))
    model_path: str | None = option(None, "Hugging Face folder or .gguf file", group="Model", aliases=("--model",))
    served_model_name: str | None = option(None, "name clients use; the folder's name otherwise", group="Model")
    tokenizer_path: str | None = option(None, "folder with the tokenizer (for stop strings); the model's otherwise", group="Model")
    load_format: str = option("auto", "how weights are stored", group="Model", choices=("auto", "safetensors", "gguf", "dummy", "scripted"))
    script: str | None = option(None, "JSON file the scripted engine plays", group="Model")
    weight_version: str = option("default", "label of these weights; requests may demand it", group="Model")
    dtype: str = option("auto", "precision of weights and cache", group="Model", choices=("auto", "float32", "bfloat16", "float16"))
    quantization: str = option(
        "auto",
        "weights in fewer bits; auto takes int8 where a stored quality check passed",
        group="Model",
        choices=("auto", "none", "int8"),
    )
    context_length: int | None = option(
        None, "longest prompt and output together; the model's own otherwise", group="Model", unit="tokens", check=at_least(1)
    )
    attention_backend: str = option("auto", "how attention is computed", group="Model", choices=("auto", "torch_native", "cpu"))
    device: str = option("cpu", "where the model runs", group="Model", choices=("cpu",))
    cpu_threads: int | None = option(None, "threads of the engine; all cores of this process otherwise", group="Model", check=at_least(1))


@dataclass(frozen=True)
class MemoryOptions(ModelOptions):
    """How large the KV pool is and what is kept in it."""

    mem_fraction_static: float | None = option(None, "share of memory for weights and pool", group="Memory", check=_fraction)
    max_total_tokens: int | None = option(
        None, "bound of the pool (4k and 1M are understood)", group="Memory", unit="tokens", parse=count, check=at_least(1)
    )
    page_size: int = option(1, "tokens per page of the pool", group="Memory", unit="tokens", check=at_least(1))
    kv_canary: str = option(
        "none", "look for slots somebody else wrote: log them, or raise and end", group="Memory", choices=("none", "log", "raise")
    )
    kv_canary_sweep_interval: float = option(
        10.0, "time between two looks of the canary at the whole pool", group="Memory", unit="s", check=at_least(0.0)
    )
    disable_radix_cache: bool = option(False, "do not reuse prefixes", group="Memory")
    radix_eviction_policy: str = option("lru", "which cached prefix goes first", group="Memory", choices=EVICTIONS)
    radix_eviction_policy_config: str | None = option(None, "JSON object of the policy's own settings", group="Memory", check=_json_object)
    enable_session_radix_cache: bool = option(
        False, "what a session (routing_key, prompt_cache_key) used last is evicted after everything else", group="Memory"
    )
    strip_thinking_cache: bool = option(False, "keep prompts only, not the output of requests that ended", group="Memory")
    disable_cache_events: bool = option(False, "do not publish what is cached; the gateway then routes without it", group="Memory")


@dataclass(frozen=True)
class BatchOptions(MemoryOptions):
    """How requests share the device."""

    schedule_policy: str = option("fcfs", "order of the waiting queue", group="Scheduling", choices=POLICIES)
    max_running_requests: int | None = option(
        None, "requests that run together; from pool and context otherwise", group="Scheduling", check=at_least(1)
    )
    max_queued_requests: int | None = option(
        None, "requests that may wait; more are refused with 429", group="Scheduling", check=at_least(1)
    )
    max_prefill_tokens: int = option(16384, "prompt tokens of one prefill batch", group="Scheduling", unit="tokens", parse=count)
    prefill_max_requests: int | None = option(None, "requests of one prefill batch", group="Scheduling", check=at_least(1))
    chunked_prefill_size: int | None = option(
        None,
        "prompt tokens computed in one step, -1 = whole prompts; chunks adapt to --itl-target-ms otherwise",
        group="Scheduling",
        unit="tokens",
        check=_chunk,
    )
    enable_mixed_chunk: bool | None = option(
        None, "compute a chunk and decode tokens in one pass; where chunks adapt the default", group="Scheduling"
    )
    prefill_decode_interval: int = option(0, "decode steps forced between two prefill steps", group="Scheduling", check=at_least(0))
    min_free_slots_delay: int = option(
        1, "free places that running requests must leave before waiting ones are admitted", group="Scheduling", check=at_least(1)
    )
    itl_target_ms: float | None = option(
        None,
        "gap between tokens of running requests that chunks shrink to hold; 0 = chunks of a fixed size",
        group="Scheduling",
        unit="ms",
        check=at_least(0),
    )
    num_continuous_decode_steps: int = option(
        1, "decode steps in a row before a waiting prompt is looked at", group="Scheduling", check=at_least(1)
    )
    in_round_prefix_sharing: bool | None = option(
        None,
        "of waiting prompts with a common beginning one computes it; with lpm, hrrn, shortest-prefill-first the default",
        group="Scheduling",
    )
    schedule_conservativeness: float = option(1.0, "higher reserves more for running requests", group="Scheduling", check=at_least(0))
    init_new_token_ratio: float = option(
        0.7, "share of its remaining output a running request is first taken to need", group="Scheduling", check=_fraction
    )
    min_new_token_ratio_factor: float = option(0.14, "part of that share that always stays", group="Scheduling", check=_fraction)
    new_token_ratio_decay_steps: int = option(600, "decode steps in which the share falls to that", group="Scheduling", check=at_least(1))
    clip_max_new_tokens_estimation: int = option(
        4096, "most output that admission expects of a request", group="Scheduling", unit="tokens", parse=count, check=at_least(1)
    )
    retraction_policy: str = option("length", "who is put back first when memory ends", group="Scheduling", choices=("length", "priority"))
    enable_priority_scheduling: bool = option(False, "order by request priority", group="Scheduling")
    schedule_low_priority_values_first: bool = option(False, "smaller priority values come first", group="Scheduling")
    default_priority_value: int = option(0, "priority of a request without one", group="Scheduling")
    priority_scheduling_preemption_threshold: int = option(10, "difference a preemption must exceed", group="Scheduling")
    disable_priority_preemption: bool = option(False, "never stop a running request for another", group="Scheduling")
    abort_on_priority_when_disabled: bool = option(False, "refuse requests with a priority when priorities are off", group="Scheduling")
    req_waiting_timeout: float | None = option(None, "longest wait before a request is given up with 429", group="Scheduling", unit="s")
    req_running_timeout: float | None = option(None, "longest run before a request is given up", group="Scheduling", unit="s")
    disable_overlap_schedule: bool | None = option(
        None, "prepare the next step only after this one; on a CPU the default", group="Scheduling"
    )


@dataclass(frozen=True)
class SchedulerConfig(BatchOptions):
    """Everything the scheduler-worker can be told."""

    enable_deterministic_inference: bool = option(
        False, "do not start where an answer could depend on its company: only the native CPU path promises it", group="Operation"
    )
    rl_on_policy_target: str | None = option(
        None,
        "who trains on the answers; turns --enable-deterministic-inference on",
        group="Operation",
        choices=("fsdp",),
    )
    enable_custom_logit_processor: bool = option(
        False, "let requests name a logit processor of this worker (custom_logit_processor)", group="Operation"
    )
    logit_processors: tuple[str, ...] = option(
        (),
        "processors of your own beside the built-in ones, name=package.module:factory each; modules are found on PYTHONPATH",
        group="Operation",
    )
    grammar_backend: str = option("xgrammar", "who compiles constraints", group="Operation", choices=("xgrammar", "llguidance", "none"))
    constrained_json_disable_any_whitespace: bool = option(False, "constrained JSON is written compactly", group="Operation")
    constrained_json_max_whitespace_cnt: int = option(
        16, "most whitespace in a row in constrained JSON, so that no model fills its budget with it; -1 is no bound", group="Operation"
    )
    grammar_compile_timeout: float = option(
        10.0, "most processor time the compilation of one constraint may take", group="Operation", unit="s", check=at_least(0.1)
    )
    disable_jump_forward: bool = option(
        False, "run a step for each token of text that a constraint leaves no choice about", group="Operation"
    )
    warm_schemas: str | None = option(
        None, "folder of *.json (JSON schemas), *.regex and *.ebnf files to compile before the worker is ready", group="Operation"
    )
    scheduler_recv_interval: int = option(
        1, "steps between two looks at what has arrived; more make steps of very fast models cheaper", group="Operation", check=at_least(1)
    )
    sleep_on_idle: bool = option(
        True,
        "known from other servers, and always so: an idle worker sleeps until it is told something",
        group="Operation",
        check=_only(True, "must be true: an idle worker always sleeps, and wakes for every message"),
    )
    engine_client: str = option("thread", "where the engine runs beside the gRPC server", group="Operation", choices=("thread", "process"))
    random_seed: int = option(0, "seed of what the scheduler itself draws", group="Operation")
    skip_engine_warmup: bool = option(False, "do not run the engine once before saying ready", group="Operation")
    decode_log_interval: int = option(40, "decode steps between two log lines", group="Operation", check=at_least(1))
    watchdog_timeout: float = option(
        300.0, "a step may take this long before the worker ends itself", group="Operation", unit="s", check=at_least(0)
    )
    soft_watchdog_timeout: float | None = option(None, "a step may take this long before stacks are dumped", group="Operation", unit="s")
