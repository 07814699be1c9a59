"""Families of the tokenizer and the detokenizer."""

from __future__ import annotations

from services.common.metric_families import buckets
from services.common.metric_families.family import Label, counter, gauge, histogram

TOKENIZER = (
    counter("headrace_tokenizer_texts_total", "Texts and chats encoded."),
    counter("headrace_tokenizer_tokens_total", "Tokens produced by encoding."),
    counter("headrace_tokenizer_text_bytes_total", "Bytes of text encoded."),
    counter(
        "headrace_tokenizer_rejections_total",
        "Calls refused, by limit.",
        Label("limit", ("text_bytes", "batch", "queue", "template", "invalid")),
    ),
    histogram("headrace_tokenizer_encode_seconds", "Time of encoding one call's texts, waiting for a thread included.", buckets.WORK),
    histogram("headrace_tokenizer_render_seconds", "Time of rendering one chat template.", buckets.WORK),
    counter(
        "headrace_tokenizer_cache_lookups_total",
        "Lookups in the encoding cache.",
        Label("result", ("hit", "miss")),
        when="the encoding cache is on",
    ),
)

DETOKENIZER = (
    gauge("headrace_detokenizer_sessions", "Connected Sessions."),
    gauge("headrace_detokenizer_open_states", "Choices being detokenized; 0 when idle."),
    gauge("headrace_detokenizer_state_limit", "Most choices that may be open at once."),
    counter("headrace_detokenizer_opened_states_total", "Choices opened."),
    counter(
        "headrace_detokenizer_failed_states_total",
        "Choices ended by an error, by kind.",
        Label("reason", ("invalid", "limit", "gap", "internal")),
    ),
    counter("headrace_detokenizer_tokens_total", "Tokens received."),
    counter("headrace_detokenizer_text_bytes_total", "Bytes of text sent."),
    counter("headrace_detokenizer_frames_total", "Frames of tokens received."),
    histogram("headrace_detokenizer_frame_seconds", "Time of turning one frame of tokens into text.", buckets.WORK),
)
