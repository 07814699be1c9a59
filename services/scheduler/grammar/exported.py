"""What a worker exports about its grammars."""

from __future__ import annotations

from collections.abc import Callable

from services.common.metrics import Metrics
from services.scheduler.grammar.store import GrammarStore, StoreCounters


def export(store: GrammarStore, metrics: Metrics) -> None:
    """Have the store's counters read at every scrape, and compile times observed as they come."""
    store.on_compiled = metrics.histogram("headrace_worker_grammar_compile_seconds").observe

    def of(value: Callable[[StoreCounters], int]) -> Callable[[], float]:
        return lambda: value(store.counters)

    lookups = {"miss": of(lambda c: c.misses), "hit": of(lambda c: c.hits), "invalid": of(lambda c: c.refused)}
    for result, count in lookups.items():
        metrics.counter("headrace_worker_grammar_lookups_total", result=result).read(count)
    failures = {"invalid": of(lambda c: c.invalid), "too_costly": of(lambda c: c.timeouts), "error": of(lambda c: c.errors)}
    for reason, count in failures.items():
        metrics.counter("headrace_worker_grammar_failures_total", reason=reason).read(count)
    metrics.gauge("headrace_worker_grammars_compiling").read(lambda: store.compiling)
    metrics.gauge("headrace_worker_grammar_cache_entries").read(lambda: len(store))
    metrics.gauge("headrace_worker_grammar_cache_bytes").read(lambda: store.bytes_held)
