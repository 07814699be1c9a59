"""The detokenizer's metrics, asked for once."""

from __future__ import annotations

from services.common.errors import HeadraceError, Internal, InvalidRequest, Overloaded
from services.common.metrics import Metrics
from services.detokenizer.texts import StateBudget


class Instruments:
    """Counters of the token path and gauges that are read when scraped."""

    def __init__(self, metrics: Metrics, budget: StateBudget) -> None:
        self.sessions = metrics.gauge("headrace_detokenizer_sessions")
        self.opened = metrics.counter("headrace_detokenizer_opened_states_total")
        self.tokens = metrics.counter("headrace_detokenizer_tokens_total")
        self.text_bytes = metrics.counter("headrace_detokenizer_text_bytes_total")
        self.frames = metrics.counter("headrace_detokenizer_frames_total")
        self.frame_seconds = metrics.histogram("headrace_detokenizer_frame_seconds")
        self._failed = {
            reason: metrics.counter("headrace_detokenizer_failed_states_total", reason=reason)
            for reason in ("invalid", "limit", "gap", "internal")
        }
        metrics.gauge("headrace_detokenizer_open_states").read(lambda: budget.used)
        metrics.gauge("headrace_detokenizer_state_limit").set(budget.limit)

    def failed(self, error: HeadraceError) -> None:
        """Count a choice that ended badly."""
        if isinstance(error, Overloaded):
            reason = "limit"
        elif isinstance(error, Internal):
            reason = "gap"
        else:
            reason = "invalid" if isinstance(error, InvalidRequest) else "internal"
        self._failed[reason].inc()
