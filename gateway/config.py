"""The gateway's settings."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.routing.factory import POLICIES
from services.common.config import at_least, count, option
from services.common.server_config import ServerConfig

TOOL_PARSERS = (
    "hermes", "qwen", "qwen25", "llama3", "llama3_json", "mistral", "deepseek", "deepseekv3", "deepseek_v3", "deepseekv31", "pythonic",
)  # fmt: skip
REASONING_PARSERS = ("deepseek-r1", "deepseek_r1", "qwen3", "qwen3-thinking", "glm45")

_DOORS, _SERVICES, _LIMITS, _KEYS = "Doors", "Services", "Limits", "Keys"
_ROUTING, _RELIABILITY, _BREAKER, _ANSWERS = "Routing", "Reliability", "Circuit breaker", "Answers"
_DISCOVERY, _HEALTH = "Discovery", "Health"


ADAPTIVE = 0


def concurrency(text: str) -> int:
    """A number, -1 for no limit, or `adaptive`."""
    return ADAPTIVE if text == "adaptive" else int(text)


@dataclass(frozen=True)
class GatewayConfig(ServerConfig):
    """Where clients come in, which services answer them, and what they may ask for."""

    port: int = option(30000, "port of the REST door; 0 takes a free one", group="Network", check=at_least(0))
    grpc_port: int = option(-1, "port of the gRPC door; -1 is port + 1, 0 takes a free one, -2 turns it off", group=_DOORS)
    metrics_on_main_port: bool = option(False, "serve /metrics on the REST door too", group=_DOORS)
    cors_origins: tuple[str, ...] = option(
        (), "origins whose pages may call the REST door; * for all", group=_DOORS, aliases=("--cors-allowed-origins",)
    )
    drain_timeout: float = option(
        180.0,
        "time a signalled process gives running work",
        unit="s",
        group="Lifecycle",
        check=at_least(0),
        aliases=("--shutdown-grace-period-secs",),
    )
    shared_port: bool = option(
        False, "several gateway processes listen on the same ports; --processes divides limits, metrics ports differ", group=_DOORS
    )
    processes: int = option(1, "gateway processes that share the port", group=_DOORS, check=at_least(1))

    tokenizer: tuple[str, ...] = option(("127.0.0.1:30010",), "tokenizer services, host:port each", group=_SERVICES)
    detokenizer: tuple[str, ...] = option(("127.0.0.1:30020",), "detokenizer services, host:port each", group=_SERVICES)
    workers: tuple[str, ...] = option((), "scheduler-workers, host:port each", group=_SERVICES, aliases=("--worker-urls",))

    api_key: str | None = option(None, "key clients must send", group=_KEYS, secret=True)
    api_key_file: str | None = option(None, "file with keys clients may send, one a line", group=_KEYS)
    admin_api_key: str | None = option(None, "key for admin routes, which then refuse the others", group=_KEYS, secret=True)
    admin_api_key_file: str | None = option(None, "file with admin keys, one a line", group=_KEYS)
    cache_isolation: str = option("none", "api-key: callers with different keys share no cache", choices=("none", "api-key"), group=_KEYS)

    max_body_bytes: int = option(
        64 << 20,
        "largest request body, before and after decompression",
        unit="bytes",
        parse=count,
        group=_LIMITS,
        aliases=("--max-payload-size",),
    )
    max_header_bytes: int = option(16_384, "longest header line", unit="bytes", parse=count, group=_LIMITS)
    header_timeout_secs: float = option(
        30.0, "time a new connection has to send the headers of its first request", unit="s", group=_LIMITS, check=at_least(0.1)
    )
    keep_alive_timeout_secs: float = option(
        620.0, "silence after which a connection is closed; more than that of a proxy in front", unit="s", group=_LIMITS, check=at_least(1)
    )
    max_choices: int = option(128, "largest n", group=_LIMITS, check=at_least(1))
    max_logprobs: int = option(20, "most alternatives per token", group=_LIMITS, check=at_least(0))
    max_batch: int = option(1024, "most choices of one request, all prompts together", group=_LIMITS, check=at_least(1))
    request_timeout_secs: float = option(1800.0, "longest life of a request; 0 is no limit", unit="s", group=_LIMITS, check=at_least(0))
    max_concurrent_requests: int = option(
        ADAPTIVE,
        "requests running at once per model; 0, or the word adaptive, begins with what the workers can run and finds the knee, "
        "-1 is no limit",
        parse=concurrency,
        group=_LIMITS,
    )
    queue_size: int = option(
        -1, "requests waiting at once per model; -1 is four times as many as may run, and at least 1024", group=_LIMITS, check=at_least(-1)
    )
    queue_timeout_secs: float = option(60.0, "longest wait in the gateway's queue", unit="s", group=_LIMITS, check=at_least(0))
    rate_limit_tokens_per_second: float = option(
        0.0, "requests let in per second and model (each takes a token from a bucket); 0 is no limit", group=_LIMITS, check=at_least(0)
    )
    rate_limit_burst: float = option(
        0.0, "requests that may come at once after a pause; 0 is as many as in one second", group=_LIMITS, check=at_least(0)
    )
    max_unsent_bytes: int = option(1 << 20, "unsent output at which a slow client is cut off", unit="bytes", parse=count, group=_LIMITS)
    client_stall_secs: float = option(30.0, "time a client may accept no byte", unit="s", group=_LIMITS, check=at_least(1))
    keepalive_comment_secs: float = option(15.0, "silence after which a stream gets a comment", unit="s", group=_LIMITS, check=at_least(1))

    policy: str = option("cache_aware", "how a worker is chosen", choices=POLICIES, group=_ROUTING)
    balance_abs_threshold: int = option(64, "requests the busiest worker may be ahead, and", group=_ROUTING, check=at_least(0))
    balance_rel_threshold: float = option(1.5, "times the idlest's load it may have, before load alone decides", group=_ROUTING)
    cache_threshold: float = option(0.3, "share of a prompt a match must cover while no worker has measured its speed", group=_ROUTING)
    max_tree_size: int = option(1 << 20, "blocks remembered for workers that publish no cache events", parse=count, group=_ROUTING)
    eviction_interval_secs: float = option(
        120.0,
        "no effect: the guess is kept within --max-tree-size at every request",
        unit="s",
        group=_ROUTING,
        aliases=("--eviction-interval",),
    )
    prefix_token_count: int = option(256, "tokens that prefix_hash looks at", group=_ROUTING, check=at_least(16))
    prefix_hash_load_factor: float = option(1.25, "load over the mean at which prefix_hash passes on", group=_ROUTING, check=at_least(1))
    max_idle_secs: float = option(14_400.0, "time after which the manual policy forgets an idle key", unit="s", group=_ROUTING)

    worker_dns: tuple[str, ...] = option((), "names that resolve to all workers, host:port each", group=_DISCOVERY)
    service_discovery: bool = option(False, "find workers in Kubernetes EndpointSlices", group=_DISCOVERY)
    selector: tuple[str, ...] = option((), "labels of the EndpointSlices, key=value each", group=_DISCOVERY)
    service_discovery_namespace: str = option("", "namespace; empty is the gateway's own", group=_DISCOVERY)
    service_discovery_port: int = option(0, "port of the workers; 0 takes the slice's port of that name", group=_DISCOVERY)
    service_discovery_port_name: str = option("grpc", "name of the workers' port in the slices", group=_DISCOVERY)
    worker_grace_secs: float = option(180.0, "time a worker that is no longer listed keeps its streams", unit="s", group=_DISCOVERY)

    health_interval_secs: float = option(
        60.0, "time between health checks where Watch is missing", unit="s", group=_HEALTH, aliases=("--health-check-interval-secs",)
    )
    health_timeout_secs: float = option(
        5.0, "time a health check may take", unit="s", group=_HEALTH, aliases=("--health-check-timeout-secs",), check=at_least(0.01)
    )
    health_failures: int = option(
        3, "failed attempts before a worker counts as failed", group=_HEALTH, aliases=("--health-failure-threshold",), check=at_least(1)
    )
    health_successes: int = option(
        2, "good checks in a row that bring it back", group=_HEALTH, aliases=("--health-success-threshold",), check=at_least(1)
    )

    max_resumes: int = option(3, "times one request may go on elsewhere in mid-answer", group=_RELIABILITY, check=at_least(0))
    resume_patience_secs: float = option(
        60.0, "time an answer cut in its middle waits for a worker to go on with", unit="s", group=_RELIABILITY, check=at_least(0)
    )
    retry_max_retries: int = option(5, "attempts of a request that has produced nothing, the first counted", group=_RELIABILITY)
    retry_initial_backoff_ms: float = option(50.0, "longest first wait", unit="ms", group=_RELIABILITY, check=at_least(0))
    retry_max_backoff_ms: float = option(30_000.0, "longest wait of all", unit="ms", group=_RELIABILITY, check=at_least(0))
    retry_backoff_multiplier: float = option(1.5, "growth of the longest wait", group=_RELIABILITY, check=at_least(1))
    resume_prefills_per_worker: int = option(
        4, "requests that may recompute their prompt on one worker at a time after a loss", group=_RELIABILITY, check=at_least(1)
    )
    disable_retries: bool = option(False, "one attempt only", group=_RELIABILITY)
    hold_secs: float = option(30.0, "time a request waits for a service that is starting again", unit="s", group=_RELIABILITY)
    worker_stall_secs: float = option(30.0, "silence after which a worker with requests counts as dead", unit="s", group=_RELIABILITY)

    disable_circuit_breaker: bool = option(False, "send requests to workers that fail", group=_BREAKER)
    cb_failure_threshold: int = option(10, "failures in the window that open it", group=_BREAKER, check=at_least(1))
    cb_success_threshold: int = option(3, "good trial calls that close it", group=_BREAKER, check=at_least(1))
    cb_timeout_duration_secs: float = option(60.0, "time it stays open", unit="s", group=_BREAKER)
    cb_window_duration_secs: float = option(120.0, "window in which failures count", unit="s", group=_BREAKER)

    sampling_defaults: str = option("model", "values for what a request leaves out", choices=("model", "openai"), group=_ANSWERS)
    default_seed: int | None = option(
        None, "seed of requests that bring none, so that equal requests have equal answers; a new one for each otherwise", group=_ANSWERS
    )
    tool_call_parser: str = option("", "how the model writes tool calls", choices=("", *TOOL_PARSERS), group=_ANSWERS)
    reasoning_parser: str = option("", "how the model writes its thoughts", choices=("", *REASONING_PARSERS), group=_ANSWERS)
    incremental_streaming_output: bool = option(False, "/generate streams only what is new, not all text so far", group=_ANSWERS)
    stream_response_default_include_usage: bool = option(False, "streams end with usage unless asked not to", group=_ANSWERS)
    enable_cache_report: bool = option(True, "no effect: cached tokens are always reported", group=_ANSWERS)
