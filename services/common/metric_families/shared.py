"""Families every process exports, and the labels several tables use."""

from __future__ import annotations

from services.common.metric_families import buckets
from services.common.metric_families.family import Label, counter, gauge, histogram

MODEL = Label("model_name", limit=64)
WORKER = Label("worker")
GRPC_METHOD = Label("method", limit=64)
GRPC_CODE = Label(
    "code",
    (
        "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS",
        "UNAUTHENTICATED",
    ),
)  # fmt: skip
# How a choice ended; the first six are the contract's FinishReason, tool_calls is what OpenAI's doors make of a stop.
FINISH = Label("reason", ("stop", "length", "abort", "grammar_end", "error", "interrupted", "tool_calls"))
CAUSE = Label("cause", ("client_disconnect", "abort_request", "deadline", "slow_consumer", "superseded", "shutdown", "satisfied"))
EVENT = Label("kind", ("stored", "removed", "cleared"))
LIMIT = Label("limit", limit=32)

SHARED = (
    gauge("headrace_build_info", "Always 1; the labels say what runs.", Label("service", limit=8), Label("version", limit=8)),
    gauge("headrace_ready", "1 while the process takes new work, as its health check says; else 0."),
    gauge("headrace_draining", "1 from the first signal to the exit; else 0."),
    gauge("headrace_asyncio_tasks", "Asyncio tasks that have not ended, counted twice a second; a number that only grows is a leak."),
    histogram("headrace_event_loop_lag_seconds", "How late a timer of the asyncio loop fires, sampled twice a second.", buckets.WORK),
)

GRPC = (
    counter(
        "headrace_grpc_requests_total",
        "Finished gRPC calls by method and status. A stream counts when it ends; one that its client left may be OK or CANCELLED.",
        GRPC_METHOD,
        GRPC_CODE,
    ),
    gauge("headrace_grpc_requests_in_flight", "gRPC calls that run now, Sessions included.", GRPC_METHOD),
    histogram("headrace_grpc_request_duration_seconds", "Time of unary gRPC calls.", buckets.WORK, GRPC_METHOD),
)
