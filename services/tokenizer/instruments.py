"""The tokenizer's metrics, asked for once."""

from __future__ import annotations

from services.common.metrics import Metrics

LIMITS = ("text_bytes", "batch", "queue", "template", "invalid")


class Instruments:
    """What is counted per call."""

    def __init__(self, metrics: Metrics) -> None:
        self.texts = metrics.counter("headrace_tokenizer_texts_total")
        self.tokens = metrics.counter("headrace_tokenizer_tokens_total")
        self.text_bytes = metrics.counter("headrace_tokenizer_text_bytes_total")
        self.encode_seconds = metrics.histogram("headrace_tokenizer_encode_seconds")
        self.render_seconds = metrics.histogram("headrace_tokenizer_render_seconds")
        self._rejections = {limit: metrics.counter("headrace_tokenizer_rejections_total", limit=limit) for limit in LIMITS}

    def rejected(self, limit: str) -> None:
        """Count a refused call, by one of LIMITS."""
        self._rejections[limit].inc()
