"""One worker as the gateway knows it: where it is, what it serves, what state it is in, how busy it is.

    pending ──session open, serving──► ready ◄──serving──► not_ready ──unreachable n times──► failed
       └────────unreachable n times, or a mismatch──────────────────────────────────────────────▲
    any ──drain──► draining ──no request left, or grace over──► (removed)

Only `ready` workers get new requests. Streams that run on a worker go on in every state until they end or break.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.resilience.circuit_breaker import CircuitBreaker
from gateway.workers.state import Signals, WorkerState

__all__ = ["InFlight", "LoadReport", "ModelIdentity", "Worker", "WorkerInfo", "WorkerState"]

_FADE = 0.99  # a hundred requests back counts a third


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """What must be equal for a request to go on elsewhere."""

    model: str
    model_digest: str
    tokenizer_digest: str
    weight_version: str = ""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What a worker says of itself, once per boot."""

    identity: ModelIdentity
    boot_id: str = ""
    block_size: int = 16
    context_tokens: int = 0
    pool_tokens: int = 0
    vocab_size: int = 0
    batch_invariant: bool = False
    quantization: str = ""
    process_id: int = 0


@dataclass(frozen=True, slots=True)
class LoadReport:
    """A worker's load at one moment, its work for all gateways counted. Tokens, requests, seconds."""

    running: int = 0
    waiting: int = 0
    waiting_prefill_tokens: int = 0
    kv_used_tokens: int = 0
    kv_total_tokens: int = 0
    kv_evictable_tokens: int = 0
    prefill_tokens_per_s: float = 0.0
    generation_tokens_per_s: float = 0.0
    decode_step_s: float = 0.0
    last_turn_age_s: float = 0.0
    max_running: int = 0
    chunk_tokens: int = 0

    @property
    def kv_free_tokens(self) -> int:
        """What neither running requests nor cached prefixes hold."""
        return max(0, self.kv_total_tokens - self.kv_used_tokens - self.kv_evictable_tokens)


@dataclass(slots=True)
class InFlight:
    """What runs on a worker. Leases count this gateway's own requests; reports add what only the worker knows.

    prefill_tokens: own prompt tokens whose first output token has not come; started_tokens: those of them that the worker
    has begun with. computed_tokens: of those, how many a report showed to be done, as of a prompt of many chunks.
    others_*: what other gateways have there.
    """

    requests: int = 0
    prefill_tokens: int = 0
    started_tokens: int = 0
    computed_tokens: int = 0
    others_requests: int = 0
    others_prefill_tokens: int = 0

    def reported(self, report: LoadReport) -> None:
        """Take over a report. It may be older than the last requests sent: what it lacks of those says nothing."""
        self.others_requests = max(0, report.running + report.waiting - self.requests)
        lacking = self.prefill_tokens - report.waiting_prefill_tokens
        self.others_prefill_tokens = max(0, -lacking) if self.others_requests else 0
        self.computed_tokens = max(0, lacking) if report.running else 0

    def forget_reports(self) -> None:
        """Nothing is known but what leases have counted."""
        self.others_requests = self.others_prefill_tokens = self.computed_tokens = 0

    @property
    def load(self) -> int:
        return self.requests + self.others_requests

    @property
    def queued_prefill_tokens(self) -> int:
        return self.prefill_tokens - min(self.computed_tokens, self.started_tokens) + self.others_prefill_tokens


@dataclass(slots=True)
class RecentHits:
    """Prompt tokens of a worker's last requests and those it found in its cache; a request fades as others follow it."""

    prompt_tokens: float = 0.0
    cached_tokens: float = 0.0

    def add(self, prompt_tokens: int, cached_tokens: int) -> None:
        """One request has begun."""
        self.prompt_tokens = _FADE * self.prompt_tokens + prompt_tokens
        self.cached_tokens = _FADE * self.cached_tokens + cached_tokens

    @property
    def rate(self) -> float | None:
        """Share of prompt tokens that were cached; None before the first request."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None


class Worker:
    """Identity, state and counters of one worker. The registry changes the state; leases change the counters.

    The id is the normalised address: every gateway process calls the worker the same, and so do people.
    """

    def __init__(self, address: str, *, source: str, breaker: CircuitBreaker) -> None:
        self.id = self.address = address
        self.source = source
        self.breaker = breaker
        self.signals = Signals()
        self.state = WorkerState.PENDING
        self.state_reason = "not reached yet"
        self.info: WorkerInfo | None = None
        self.load = LoadReport()
        self.in_flight = InFlight()
        self.recent_hits = RecentHits()
        self.is_silent = False  # owes tokens and has said nothing for seconds: it may be gone, and is avoided before that is sure

    @property
    def model(self) -> str | None:
        return self.info.identity.model if self.info is not None else None

    @property
    def is_ready(self) -> bool:
        return self.state is WorkerState.READY and self.info is not None

    def forget_load(self) -> None:
        """What it reported in an earlier Session no longer holds; its speed does."""
        self.in_flight.forget_reports()

    def report_load(self, report: LoadReport) -> None:
        """The worker has published its load."""
        self.load = report
        self.in_flight.reported(report)

    def __repr__(self) -> str:
        return f"Worker({self.id}, {self.state})"
