"""Families of the gateway: what clients experience, and what the gateway did about it."""

from __future__ import annotations

from services.common.metric_families import buckets
from services.common.metric_families.family import Label, counter, gauge, histogram
from services.common.metric_families.shared import CAUSE, EVENT, FINISH, LIMIT, MODEL, WORKER

DOOR = Label("door", ("chat", "completions", "generate", "grpc_generate", "grpc_chat", "tokenize", "detokenize"))
STREAMING = Label("streaming", ("true", "false"))
OUTCOME = Label(
    "outcome",
    (
        "ok", "invalid_request", "not_found", "overloaded", "unavailable", "deadline_exceeded", "cancelled", "payload_too_large",
        "unauthenticated", "permission_denied", "conflict", "internal",
    ),
)  # fmt: skip
HTTP_ROUTE = Label("route", limit=64)
HTTP_METHOD = Label("method", ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
HTTP_CODE = Label("code", limit=64)
STAGE = Label("stage", ("tokenize", "admission", "route", "accept", "first_token", "decode"))
SOURCE = Label("source", ("device", "host", "storage"))
LINK = Label("service", ("tokenizer", "detokenizer", "scheduler"))

_LATENCY = (
    histogram(
        "headrace_time_to_first_token_seconds",
        "From a request's arrival at the gateway to its first text or token leaving; answers that are not streamed: "
        "to the first token's arrival.",
        buckets.FIRST_TOKEN,
        MODEL,
        STREAMING,
        known_as=("sglang:time_to_first_token_seconds", "vllm:time_to_first_token_seconds"),
    ),
    histogram(
        "headrace_inter_token_latency_seconds",
        "Gap between tokens of a choice after its first, one observation per token; tokens that arrive together share their gap.",
        buckets.TOKEN_GAP,
        MODEL,
        known_as=("sglang:inter_token_latency_seconds", "vllm:inter_token_latency_seconds"),
    ),
    histogram(
        "headrace_time_per_output_token_seconds",
        "A finished choice's time after its first token, divided by its tokens after the first.",
        buckets.TOKEN_GAP,
        MODEL,
        known_as=("sglang:request_time_per_output_token_seconds", "vllm:request_time_per_output_token_seconds"),
    ),
    histogram(
        "headrace_e2e_request_latency_seconds",
        "From a request's arrival at the gateway to the end of its answer.",
        buckets.REQUEST,
        MODEL,
        STREAMING,
        known_as=("sglang:e2e_request_latency_seconds", "vllm:e2e_request_latency_seconds"),
    ),
    histogram(
        "headrace_request_stage_seconds",
        "Time a request spent in a stage: tokenize, admission (the gateway's own queue), route, accept (submit to a worker's word), "
        "first_token (accepted to first token), decode (first token to last).",
        (*buckets.WORK, 60.0, 300.0, 1800.0),
        STAGE,
        known_as=("sglang:per_stage_req_latency_seconds",),
    ),
    histogram(
        "headrace_request_prompt_tokens",
        "Prompt tokens of finished requests.",
        buckets.TOKENS,
        MODEL,
        known_as=("vllm:request_prompt_tokens",),
    ),
    histogram(
        "headrace_request_generation_tokens",
        "Output tokens of finished choices.",
        buckets.TOKENS,
        MODEL,
        known_as=("vllm:request_generation_tokens",),
    ),
)

_REQUESTS = (
    counter(
        "headrace_requests_total",
        "Requests by how they ended; those refused while they were read (400, 404, 413) have an empty model_name.",
        MODEL,
        DOOR,
        OUTCOME,
        known_as=("sglang:num_requests_total",),
    ),
    counter("headrace_finished_choices_total", "Choices by finish reason.", MODEL, FINISH, known_as=("vllm:request_success_total",)),
    counter(
        "headrace_aborted_requests_total",
        "Requests ended before their answer was complete, by cause.",
        CAUSE,
        known_as=("sglang:num_aborted_requests_total",),
    ),
    counter(
        "headrace_structured_requests_total",
        "Requests with a grammar, by its kind.",
        Label("kind", ("json_schema", "regex", "ebnf", "structural_tag")),
        known_as=("sglang:num_so_requests_total",),
    ),
    gauge("headrace_requests_in_flight", "Requests the gateway is serving now, its own queue included.", MODEL),
    gauge("headrace_requests_waiting", "Requests in the gateway's own admission queue."),
    counter(
        "headrace_prompt_tokens_total",
        "Prompt tokens of finished requests.",
        MODEL,
        known_as=("sglang:prompt_tokens_total", "vllm:prompt_tokens_total"),
    ),
    counter(
        "headrace_generation_tokens_total",
        "Tokens received from workers for clients, each once however often a request moved.",
        MODEL,
        known_as=("sglang:generation_tokens_total", "vllm:generation_tokens_total"),
    ),
    counter(
        "headrace_cached_prompt_tokens_total",
        "Prompt tokens that came from a worker's cache, by tier.",
        MODEL,
        SOURCE,
        known_as=("sglang:cached_tokens_total",),
    ),
)

_HTTP = (
    counter(
        "headrace_http_requests_total",
        "HTTP answers by route template (all others are 'unmatched'), method and status.",
        HTTP_ROUTE,
        HTTP_METHOD,
        HTTP_CODE,
    ),
    histogram(
        "headrace_http_request_duration_seconds",
        "HTTP time from request line to last byte, by route template.",
        buckets.REQUEST,
        HTTP_ROUTE,
    ),
    counter("headrace_auth_failures_total", "Requests refused for a missing or wrong key."),
    counter("headrace_slow_clients_total", "Streams cut off because the client did not read."),
)

_ROUTING = (
    counter(
        "headrace_routing_decisions_total", "Worker choices by policy and reason.", Label("policy", limit=16), Label("reason", limit=32)
    ),
    counter("headrace_routed_requests_total", "Attempts sent to each worker.", WORKER),
    gauge("headrace_routed_requests_in_flight", "Attempts running on each worker, as this gateway counts them.", WORKER),
    counter("headrace_routing_predicted_cached_tokens_total", "Prompt tokens the router expected in the chosen worker's cache."),
    counter("headrace_routing_found_cached_tokens_total", "Prompt tokens the chosen workers found in their caches, for the same requests."),
    gauge("headrace_workers", "Known workers by state.", MODEL, Label("state", ("ready", "starting", "draining", "unhealthy"))),
    gauge("headrace_links", "Established streams or channels to each kind of service.", LINK),
    counter("headrace_link_failures_total", "Links that broke or could not be made.", LINK),
    counter(
        "headrace_discovery_events_total", "Changes seen by service discovery.", Label("kind", ("added", "changed", "removed", "error"))
    ),
)

_RESILIENCE = (
    counter(
        "headrace_retries_total",
        "Requests sent to a worker again before any output, by what failed.",
        Label("reason", ("overloaded", "unavailable", "connect", "timeout", "other")),
    ),
    counter("headrace_resumes_total", "Requests that moved in mid-answer: resumed, or failed to.", Label("outcome", ("resumed", "failed"))),
    counter("headrace_retries_refused_total", "Retries that were not made because the shared budget was spent."),
    gauge("headrace_retry_budget_remaining_ratio", "Share of the shared retry budget that is left, 1 when idle."),
    gauge("headrace_breaker_state", "Circuit breaker of each worker: 0 closed, 1 half-open, 2 open.", WORKER),
    counter(
        "headrace_breaker_transitions_total",
        "Changes of breakers by the state entered.",
        WORKER,
        Label("to", ("closed", "half_open", "open")),
    ),
    gauge("headrace_panic_routing", "1 while so many breakers are open that they are ignored; else 0."),
    counter("headrace_admission_rejections_total", "Requests refused by a limit of the gateway.", LIMIT),
    gauge("headrace_limit", "Limits in force at the gateway.", LIMIT),
)

_CACHE_EVENTS = (
    counter("headrace_cache_events_total", "Cache events received from workers.", EVENT),
    counter("headrace_cache_event_gaps_total", "Gaps in a worker's event numbers; each is followed by a snapshot.", WORKER),
    counter("headrace_cache_snapshots_total", "Snapshots taken from each worker.", WORKER),
    gauge("headrace_cache_event_age_seconds", "Time since a worker's cache stream last said anything.", WORKER),
    gauge("headrace_prefix_blocks", "Blocks each worker is known to hold.", WORKER),
    gauge("headrace_prefix_tree_nodes", "Nodes of the gateway's prefix tree."),
)

GATEWAY = (*_LATENCY, *_REQUESTS, *_HTTP, *_ROUTING, *_RESILIENCE, *_CACHE_EVENTS)
