"""Families of a scheduler-worker. All carry the constant label model_name; only rank 0 exports, so sums do not double."""

from __future__ import annotations

from services.common.metric_families import buckets
from services.common.metric_families.family import Label, counter, gauge, histogram
from services.common.metric_families.shared import CAUSE, EVENT, FINISH, LIMIT

MODE = Label("mode", ("prefill", "decode", "mixed"))

_LOAD = (
    gauge(
        "headrace_worker_running_requests",
        "Choices in the running batch.",
        known_as=("sglang:num_running_reqs", "vllm:num_requests_running"),
    ),
    gauge(
        "headrace_worker_waiting_requests", "Choices in the waiting queue.", known_as=("sglang:num_queue_reqs", "vllm:num_requests_waiting")
    ),
    gauge(
        "headrace_worker_grammar_waiting_requests", "Choices whose grammar is being compiled.", known_as=("sglang:num_grammar_queue_reqs",)
    ),
    gauge("headrace_worker_waiting_prefill_tokens", "Prompt tokens still to be computed, waiting and running, without cached ones."),
    gauge("headrace_worker_kv_capacity_tokens", "Slots of the KV pool.", known_as=("sglang:max_total_num_tokens",)),
    gauge(
        "headrace_worker_kv_used_tokens",
        "Slots that running requests hold.",
        known_as=("sglang:num_used_tokens", "sglang:kv_used_tokens"),
    ),
    gauge(
        "headrace_worker_kv_evictable_tokens",
        "Slots with cached prefixes nobody is using.",
        known_as=("sglang:kv_evictable_tokens",),
    ),
    gauge(
        "headrace_worker_kv_free_tokens",
        "Empty slots. Used, evictable and free add up to the capacity.",
        known_as=("sglang:kv_available_tokens",),
    ),
    gauge(
        "headrace_worker_kv_cache_bytes",
        "Size of the KV pool's tensors; a scripted engine has none.",
        known_as=("sglang:kv_cache_memory_usage_gb",),
    ),
    gauge(
        "headrace_worker_weight_bytes",
        "Size of the weights as they are computed with; a scripted engine has none.",
        known_as=("sglang:weight_memory_usage_gb",),
    ),
    gauge(
        "headrace_worker_kv_usage_ratio",
        "Used slots divided by the capacity; 0 when idle.",
        known_as=("sglang:token_usage", "vllm:kv_cache_usage_perc"),
    ),
    gauge(
        "headrace_worker_new_token_ratio",
        "Share of the running requests' remaining output that admission reserves.",
        known_as=("sglang:new_token_ratio",),
    ),
    gauge("headrace_worker_last_turn_age_seconds", "Time since the last finished turn while work is pending; 0 when idle."),
    gauge("headrace_worker_sessions", "Connected Sessions."),
    gauge("headrace_worker_limit", "Limits in force.", LIMIT),
    gauge("headrace_worker_startup_seconds", "Time each phase of the start took.", Label("phase", limit=16)),
)

_LATENCY = (
    histogram(
        "headrace_worker_queue_time_seconds",
        "From a choice's arrival to its first run.",
        buckets.QUEUE,
        known_as=("sglang:queue_time_seconds", "vllm:request_queue_time_seconds"),
    ),
    histogram(
        "headrace_worker_prefill_time_seconds",
        "From a choice's first run to its first token.",
        buckets.FIRST_TOKEN,
        known_as=("vllm:request_prefill_time_seconds",),
    ),
    histogram(
        "headrace_worker_time_to_first_token_seconds", "From a choice's arrival at the worker to its first token.", buckets.FIRST_TOKEN
    ),
    histogram(
        "headrace_worker_request_duration_seconds",
        "From a choice's arrival at the worker to its final message.",
        buckets.REQUEST,
        known_as=("vllm:request_inference_time_seconds",),
    ),
    histogram("headrace_worker_step_seconds", "Time from launching a step to having its result.", buckets.TOKEN_GAP, MODE),
    histogram("headrace_worker_step_rows", "Choices in a step.", buckets.ROWS, MODE),
)

_TOKENS = (
    counter(
        "headrace_worker_prefill_tokens_total",
        "Prompt tokens by where they came from: computed, or found in a cache tier. Each prompt counts once, "
        "retractions do not count it again.",
        Label("source", ("computed", "device_hit", "host_hit", "storage_hit")),
        known_as=("sglang:prefill_effective_tokens_total", "sglang:realtime_tokens_total", "sglang:cache_hit_rate"),
    ),
    counter("headrace_worker_recomputed_tokens_total", "Tokens computed again because their request was retracted."),
    counter(
        "headrace_worker_generation_tokens_total",
        "Tokens sampled and sent.",
        known_as=("sglang:generation_tokens_total", "sglang:gen_throughput"),
    ),
    counter(
        "headrace_worker_jumped_tokens_total",
        "Of the generated tokens, those written without a decode step because a constraint left no choice.",
    ),
    counter(
        "headrace_worker_discarded_tokens_total",
        "Tokens sampled and not sent: the overlap computed one past the end.",
        when="overlap scheduling is on",
    ),
    counter("headrace_worker_evicted_tokens_total", "Cached tokens removed to make room.", known_as=("sglang:evicted_tokens_total",)),
    counter(
        "headrace_worker_eviction_seconds_total",
        "Time spent choosing and removing cached tokens.",
        known_as=("sglang:eviction_duration_seconds",),
    ),
    counter("headrace_worker_cache_flushes_total", "Times the prefix cache was emptied on request."),
)

_REQUESTS = (
    counter("headrace_worker_choices_total", "Choices by how they ended.", FINISH, known_as=("sglang:num_requests_total",)),
    counter("headrace_worker_aborts_total", "Cancelled choices by cause.", CAUSE),
    counter(
        "headrace_worker_rejections_total",
        "Choices refused, by limit.",
        Label("limit", ("queue_full", "queue_timeout", "deadline", "too_long", "memory", "draining", "invalid")),
    ),
    counter(
        "headrace_worker_retractions_total",
        "Running choices put back to the queue for lack of memory.",
        known_as=("sglang:num_retracted_requests_total", "vllm:num_preemptions_total"),
    ),
    counter(
        "headrace_worker_retracted_tokens_total",
        "Computed tokens given up by retractions, prompt or output.",
        Label("kind", ("input", "output")),
        known_as=("sglang:num_retracted_input_tokens_total", "sglang:num_retracted_output_tokens_total"),
    ),
    counter("headrace_worker_out_of_memory_total", "Forward passes that ran out of memory and were survived."),
    counter("headrace_worker_memory_bound_raises_total", "Times a bound grew again that running out of memory had lowered."),
    counter("headrace_worker_bad_logits_total", "Rows whose logits were not finite; their choice ended with an error."),
    counter(
        "headrace_worker_kv_corrupt_slots_total",
        "Slots of the pool that no longer held what was written into them; any is a fault of software or memory.",
        when="--kv-canary is on",
    ),
    counter("headrace_worker_steps_total", "Steps run, by mode.", MODE),
    counter("headrace_worker_merged_frames_total", "Steps folded into a later frame because the peer was not reading."),
)

_CACHE_EVENTS = (
    counter("headrace_worker_cache_events_total", "Cache events published.", EVENT),
    counter("headrace_worker_cache_snapshots_total", "Snapshots sent to subscribers."),
    gauge("headrace_worker_cache_subscribers", "Connected subscribers of cache events."),
)

_GRAMMAR = (
    histogram(
        "headrace_worker_grammar_compile_seconds",
        "Time to compile a grammar, without the wait for a compiler.",
        buckets.WORK,
        known_as=("sglang:grammar_compilation_time_seconds",),
        when="a grammar backend is on",
    ),
    counter(
        "headrace_worker_grammar_lookups_total",
        "Grammars asked for: compiled, found compiled, or refused.",
        Label("result", ("miss", "hit", "invalid")),
        known_as=("sglang:num_grammar_cache_hit_total", "sglang:num_grammar_total"),
        when="a grammar backend is on",
    ),
    counter(
        "headrace_worker_grammar_failures_total",
        "Grammars that could not be compiled: wrong or not enforceable, over the limits of time or memory, or a fault of the compiler.",
        Label("reason", ("invalid", "too_costly", "error")),
        known_as=("sglang:num_grammar_aborted_total", "sglang:num_grammar_timeout_total"),
        when="a grammar backend is on",
    ),
    gauge("headrace_worker_grammars_compiling", "Grammars that wait for a compiler or are in one.", when="a grammar backend is on"),
    gauge("headrace_worker_grammar_cache_entries", "Grammars kept, invalid ones included.", when="a grammar backend is on"),
    gauge("headrace_worker_grammar_cache_bytes", "What the kept grammars occupy.", when="a grammar backend is on"),
)

_SPECULATION = (
    counter("headrace_worker_draft_tokens_total", "Draft tokens proposed.", when="speculation is on"),
    counter(
        "headrace_worker_accepted_draft_tokens_total",
        "Draft tokens accepted.",
        known_as=("sglang:spec_accept_rate", "sglang:spec_accept_length"),
        when="speculation is on",
    ),
    counter(
        "headrace_worker_verify_steps_total",
        "Verification passes, one per row and step.",
        known_as=("sglang:spec_verify_calls_total",),
        when="speculation is on",
    ),
)

WORKER = (*_LOAD, *_LATENCY, *_TOKENS, *_REQUESTS, *_CACHE_EVENTS, *_GRAMMAR, *_SPECULATION)
