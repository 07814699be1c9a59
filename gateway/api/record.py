"""What is counted and logged of each request. Prompts and answers never are."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gateway.api.errors import outcome_label
from gateway.flight.flight import Flight
from services.common.errors import HeadraceError
from services.common.metrics import Metrics

log = logging.getLogger("gateway.access")

_MOST_OF_A_FIELD = 120
_PROBES = frozenset(("/health", "/liveness", "/ready", "/readiness", "/metrics"))
_CAUSES = {"CLIENT_DISCONNECT": "client_disconnect", "SLOW_CONSUMER": "slow_consumer", "DEADLINE": "deadline"}


class Recorder:
    """Turns ended requests into metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def http(self, route: str, method: str, status: int, seconds: float) -> None:
        """An HTTP answer, by route template."""
        self._metrics.counter("headrace_http_requests_total", route=route, method=method, code=str(status)).inc()
        self._metrics.histogram("headrace_http_request_duration_seconds", route=route).observe(seconds)

    def auth_failure(self) -> None:
        """A key was missing or wrong."""
        self._metrics.counter("headrace_auth_failures_total").inc()

    @contextmanager
    def reading(self, door: str) -> Iterator[None]:
        """Around what comes before a request's flights: one that is refused there is counted too, without a model."""
        try:
            yield
        except HeadraceError as error:
            self._metrics.counter("headrace_requests_total", model_name="", door=door, outcome=outcome_label(error)).inc()
            raise

    def began(self, flights: Sequence[Flight], *, streaming: bool, model: str) -> None:
        """Flights are about to run: their first tokens are timed when they come, not when the request ends."""
        labels = {"model_name": model, "streaming": "true" if streaming else "false"}
        observe = self._metrics.histogram("headrace_time_to_first_token_seconds", **labels).observe
        for flight in flights:
            flight.on_begun = observe

    def ended(self, door: str, flights: Sequence[Flight], error: HeadraceError | None, *, streaming: bool, model: str) -> None:
        """A request of some door is over, with an error or without."""
        now = time.monotonic()
        self._metrics.counter("headrace_requests_total", model_name=model, door=door, outcome=outcome_label(error)).inc()
        for flight in flights:
            self._flight(flight, model, now, "true" if streaming else "false", whole=error is None)
        if error is not None and flights:
            self._abort(flights[0], error)

    def _abort(self, flight: Flight, error: HeadraceError) -> None:
        cause = _CAUSES.get(flight.cancel_cause, "") if error.http_status in (499, 504) else ""
        if cause:
            self._metrics.counter("headrace_aborted_requests_total", cause=cause).inc()

    def _flight(self, flight: Flight, model: str, now: float, streaming: str, *, whole: bool) -> None:
        m = self._metrics
        if not whole:
            return
        self._stages(flight, flight.first_token_at)
        m.histogram("headrace_e2e_request_latency_seconds", model_name=model, streaming=streaming).observe(now - flight.created)
        m.histogram("headrace_request_prompt_tokens", model_name=model).observe(len(flight.prompt_ids))
        m.counter("headrace_prompt_tokens_total", model_name=model).inc(len(flight.prompt_ids))
        if flight.spec.constraint is not None:
            m.counter("headrace_structured_requests_total", kind=flight.spec.constraint.kind).inc()
        cached = flight.choices[0].cached
        if cached is not None:
            for source, tokens in (("device", cached.device), ("host", cached.host), ("storage", cached.storage)):
                if tokens:
                    m.counter("headrace_cached_prompt_tokens_total", model_name=model, source=source).inc(tokens)
        self._choices(flight, model)

    def _stages(self, flight: Flight, first: float) -> None:
        spent = dict(flight.stages)
        if flight.accepted_at and flight.submitted_at:
            spent["accept"] = flight.accepted_at - flight.submitted_at
        if first and flight.accepted_at:
            spent["first_token"] = first - flight.accepted_at
            spent["decode"] = max(c.last_token_at for c in flight.choices) - first
        for stage, seconds in spent.items():
            self._metrics.histogram("headrace_request_stage_seconds", stage=stage).observe(max(0.0, seconds))

    def _choices(self, flight: Flight, model: str) -> None:
        m = self._metrics
        for choice in flight.choices:
            count = len(choice.output_ids)
            m.histogram("headrace_request_generation_tokens", model_name=model).observe(count)
            if choice.finish is not None:
                m.counter("headrace_finished_choices_total", model_name=model, reason=choice.finish.reason.value).inc()
            if count > 1:
                per_token = (choice.last_token_at - choice.first_token_at) / (count - 1)
                m.histogram("headrace_time_per_output_token_seconds", model_name=model).observe(per_token)


def access(request_id: str, method: str, route: str, status: int, seconds: float, error: HeadraceError | None = None) -> None:
    """One line per request, without its content: of an error its code and the field it is about, not the message, which quotes values.

    A probe is worth a line only to who debugs.
    """
    values = {"request_id": request_id, "method": method, "route": route, "status": status, "ms": round(seconds * 1000, 1)}
    if error is not None:
        values["error"] = error.code or error.type_name
        if error.field:
            values["field"] = error.field[:_MOST_OF_A_FIELD]
    log.log(logging.DEBUG if route in _PROBES else logging.INFO, "request", extra=values)
