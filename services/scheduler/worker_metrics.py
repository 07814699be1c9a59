"""What a worker exports, read from load, counters and finals."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from services.common.metrics import Metrics
from services.scheduler.core.counters import Counters
from services.scheduler.core.messages import Final, FinishReason, LoadSnapshot
from services.scheduler.delivery import Delivery, EngineClient, Facts

_NS = 1e9
_CAUSES = {1: "client_disconnect", 2: "abort_request", 3: "deadline", 4: "slow_consumer", 5: "superseded", 6: "shutdown", 7: "satisfied"}
_REJECTIONS = {
    "invalid_request": "invalid",
    "context_length_exceeded": "too_long",
    "overloaded": "queue_full",
    "unavailable": "draining",
    "deadline_exceeded": "deadline",
    "internal": "memory",
}


class WorkerMetrics:
    """Gauges are read when scraped; finals and turns are observed as they pass through the event loop."""

    def __init__(self, metrics: Metrics, engine: EngineClient, sessions: Callable[[], int]) -> None:
        self._metrics = metrics
        self._engine = engine
        self.merged_frames = metrics.counter("headrace_worker_merged_frames_total")
        self.cache_flushes = metrics.counter("headrace_worker_cache_flushes_total")
        metrics.gauge("headrace_worker_sessions").read(sessions)
        metrics.gauge("headrace_worker_last_turn_age_seconds").read(engine.turn_age_s)
        self._add_load_gauges()
        self._add_counters()
        self._queue = metrics.histogram("headrace_worker_queue_time_seconds")
        self._prefill = metrics.histogram("headrace_worker_prefill_time_seconds")
        self._first_token = metrics.histogram("headrace_worker_time_to_first_token_seconds")
        self._duration = metrics.histogram("headrace_worker_request_duration_seconds")

    def on_start(self, facts: Facts) -> None:
        """Export what the start found out."""
        self._metrics.gauge("headrace_worker_weight_bytes").set(facts.info.weight_bytes)
        self._metrics.gauge("headrace_worker_kv_cache_bytes").set(facts.info.kv_cache_bytes)
        for phase, seconds in facts.report.phases:
            self._metrics.gauge("headrace_worker_startup_seconds", phase=phase.replace(" ", "_")).set(seconds)

    def on_turn(self, delivery: Delivery) -> None:
        """Observe one turn."""
        output, mode = delivery.output, delivery.mode
        if mode is not None:
            self._metrics.histogram("headrace_worker_step_seconds", mode=mode).observe(output.engine_ns / _NS)
            self._metrics.histogram("headrace_worker_step_rows", mode=mode).observe(len(output.tokens.handles))
        for final in output.finals:
            self._on_final(final)

    def _on_final(self, final: Final) -> None:
        self._metrics.counter("headrace_worker_choices_total", reason=final.reason.name.lower()).inc()
        if final.reason is FinishReason.ABORT:
            self._metrics.counter("headrace_worker_aborts_total", cause=_CAUSES.get(final.cancel_cause, "other")).inc()
        timings = final.timings
        self._duration.observe(timings.total_ns / _NS)
        for histogram, value in (
            (self._queue, timings.queue_ns),
            (self._prefill, timings.prefill_ns),
            (self._first_token, timings.first_token_ns),
        ):
            if value is not None:
                histogram.observe(value / _NS)

    def _add_load_gauges(self) -> None:
        def of(value: Callable[[LoadSnapshot], float]) -> Callable[[], float]:
            return lambda: value(self._engine.load) if self._engine.load is not None else 0.0

        gauges: dict[str, Callable[[LoadSnapshot], float]] = {
            "running_requests": lambda load: load.running,
            "waiting_requests": lambda load: load.waiting,
            "grammar_waiting_requests": lambda load: load.grammar_waiting,
            "waiting_prefill_tokens": lambda load: load.waiting_prefill_tokens,
            "kv_capacity_tokens": lambda load: load.kv_total_tokens,
            "kv_used_tokens": lambda load: load.kv_used_tokens,
            "kv_evictable_tokens": lambda load: load.kv_evictable_tokens,
            "kv_free_tokens": lambda load: load.kv_free_tokens,
            "kv_usage_ratio": lambda load: load.kv_used_tokens / max(1, load.kv_total_tokens),
            "new_token_ratio": lambda load: load.new_token_ratio,
        }
        for name, value in gauges.items():
            self._metrics.gauge(f"headrace_worker_{name}").read(of(value))
        self._metrics.rows("headrace_worker_limit", self._limits)

    def _limits(self) -> Iterable[tuple[tuple[str], float]]:
        load = self._engine.load
        if load is None:
            return
        for name in (
            "max_running_requests",
            "max_queued_requests",
            "max_prefill_tokens",
            "chunked_prefill_size",
            "context_tokens",
            "pool_tokens",
        ):
            value = getattr(load.limits, name)
            if value is not None:
                yield (name,), value

    def _add_counters(self) -> None:
        def of(value: Callable[[Counters], float]) -> Callable[[], float]:
            return lambda: value(self._engine.counters)

        totals: dict[str, Callable[[Counters], float]] = {
            "generation_tokens": lambda c: c.generated_tokens,
            "jumped_tokens": lambda c: c.jumped_tokens,
            "discarded_tokens": lambda c: c.discarded_tokens,
            "retractions": lambda c: c.retractions,
            "recomputed_tokens": lambda c: c.recomputed_tokens,
            "out_of_memory": lambda c: c.out_of_memory,
            "memory_bound_raises": lambda c: c.memory_bound_raises,
            "bad_logits": lambda c: c.invalid_outputs,
            "kv_corrupt_slots": lambda c: c.kv_corrupt_slots,
        }
        for name, value in totals.items():
            self._metrics.counter(f"headrace_worker_{name}_total").read(of(value))
        prefill = {
            "device_hit": lambda c: c.cached_tokens,
            "computed": lambda c: c.prompt_tokens - c.cached_tokens,
        }
        for source, count in prefill.items():
            self._metrics.counter("headrace_worker_prefill_tokens_total", source=source).read(of(count))
        self._metrics.counter("headrace_worker_evicted_tokens_total").read(lambda: self._engine.evicted_tokens)
        self._metrics.counter("headrace_worker_eviction_seconds_total").read(lambda: self._engine.eviction_ns / _NS)
        given_up: dict[str, Callable[[Counters], float]] = {
            "input": lambda c: c.retracted_input_tokens,
            "output": lambda c: c.retracted_output_tokens,
        }
        for kind, lost in given_up.items():
            self._metrics.counter("headrace_worker_retracted_tokens_total", kind=kind).read(of(lost))
        steps: dict[str, Callable[[Counters], float]] = {
            "prefill": lambda c: c.prefill_steps - c.mixed_steps,
            "decode": lambda c: c.decode_steps,
            "mixed": lambda c: c.mixed_steps,
        }
        for mode, count in steps.items():
            self._metrics.counter("headrace_worker_steps_total", mode=mode).read(of(count))
        for code, limit in _REJECTIONS.items():
            self._metrics.counter("headrace_worker_rejections_total", limit=limit).read(of(_rejected(code)))


def _rejected(code: str) -> Callable[[Counters], float]:
    return lambda counters: counters.rejected.get(code, 0)
