"""What the scheduler is told and what it says, as plain values.

A `handle` names one choice of one attempt of a request: an opaque int in [0, 2**63), unique among live choices.
All times are nanoseconds of the scheduler's clock (monotonic).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

import numpy as np

from services.scheduler.core.plan import IntArray, RowLogprobs, SamplingSpec
from services.scheduler.core.protocols import Grammar, StopMatcher

NO_TOKENS: IntArray = np.empty(0, np.int32)


class FinishReason(IntEnum):
    """Why a choice ended; numbers equal the contract's."""

    STOP = 1
    LENGTH = 2
    ABORT = 3
    GRAMMAR_END = 4
    ERROR = 5
    INTERRUPTED = 6


class ErrorCode(StrEnum):
    """Kinds of failure a final message can carry."""

    INVALID_REQUEST = "invalid_request"
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    OVERLOADED = "overloaded"
    UNAVAILABLE = "unavailable"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    CANCELLED = "cancelled"
    INTERNAL = "internal"


class CacheLimit(IntEnum):
    """Why less of a prompt was taken from the cache than it might hold; numbers equal the contract's."""

    NONE = 0
    PROMPT_LOGPROBS = 1
    DISABLED = 2


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """An error as the client will see it: no traceback, the field it is about where there is one."""

    code: ErrorCode
    message: str
    field: str = ""
    retry_after_ms: int | None = None
    safe_to_retry: bool = False
    safe_to_resume: bool = False


@dataclass(frozen=True, slots=True)
class Namespace:
    """Requests share cached prefixes only where all of these are equal."""

    adapter: bytes = b""  # digest of the adapter, empty for the base model
    cache_salt: bytes = b""
    extra_key: str = ""


BASE_NAMESPACE = Namespace()


@dataclass(frozen=True, slots=True)
class ChoiceSpec:
    """One answer wanted of a request. A resumed choice carries the output a former worker produced."""

    handle: int
    index: int = 0
    seed: int = 0  # unsigned 64 bit
    prior_output_ids: IntArray = field(default_factory=lambda: NO_TOKENS)
    prior_retractions: int = 0


@dataclass(frozen=True, slots=True)
class StopSpec:
    """When to stop. Text stops are matched by `SubmitRequest.stop_matcher`; their text stays with its factory."""

    max_new_tokens: int = 128  # prior output counted; more than the context allows is clipped
    min_new_tokens: int = 0
    token_ids: tuple[int, ...] = ()  # honoured even with ignore_eos
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True)
class TextRules:
    """What a stop matcher and a grammar are made of, as plain values: they travel where the makers cannot."""

    strings: tuple[str, ...] = ()
    regexes: tuple[str, ...] = ()
    skip_special: bool = True
    keep_special_ids: tuple[int, ...] = ()
    spaces_between_special: bool = True
    constraint: tuple[str, str] | None = None  # kind and text
    begin_after_ids: tuple[int, ...] = ()
    opening_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """A request of one or more choices over one prompt; every value is within its range already.

    `sampling` is a template: seed, choice, min_new_tokens, suppress_until_min and constrained are filled per choice.
    `stop_matcher` and `grammar` make one fresh object per choice; the scheduler feeds it prior output first.
    """

    request_id: str
    prompt_ids: IntArray  # [P] int32
    choices: tuple[ChoiceSpec, ...]
    sampling: SamplingSpec = field(default_factory=SamplingSpec)
    stops: StopSpec = field(default_factory=StopSpec)
    attempt: int = 0
    priority: int | None = None
    deadline_ns: int | None = None
    received_ns: int | None = None  # when this worker had all of it, None = now: what it says of waiting counts from here
    arrival_ns: int | None = None  # its place in the queue and bound of waiting; None = received; earlier if it waited elsewhere
    tenant: str = ""
    namespace: Namespace = BASE_NAMESPACE
    session: str = ""  # requests that go on from one another; only the prefix cache cares
    prompt_logprobs_from: int | None = None  # first prompt position whose logprob is wanted
    stream_interval: int = 1  # tokens per output row after the first token
    stop_matcher: Callable[[], StopMatcher] | None = None
    grammar: Callable[[], Grammar] | None = None
    texts: TextRules = field(default_factory=TextRules)


@dataclass(frozen=True, slots=True)
class TokenColumns:
    """New tokens of one turn, column-wise. Row r: `counts[r]` ids of `handles[r]`, from output position
    `first_positions[r]` (prior output counted). `logprobs[r]` has one entry per id, or is None where not asked;
    the list is empty if no row asked."""

    handles: list[int] = field(default_factory=list)
    first_positions: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)  # sum(counts) ids, row after row
    logprobs: list[tuple[RowLogprobs, ...] | None] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The choice is valid and waits. `expected_wait_ns` is a forecast, None if nothing is known yet."""

    handle: int
    queue_position: int
    expected_wait_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """The choice's first forward pass was planned. Sent once, not again after a retraction."""

    handle: int
    prompt_tokens: int
    cached_tokens: int
    queue_ns: int
    cache_limit: CacheLimit = CacheLimit.NONE


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """Log-probabilities of prompt positions `first_position`, `first_position + 1`, …; may come in several parts.

    Position 0 has no predecessor and therefore no value: parts start at 1 at the earliest.
    """

    handle: int
    first_position: int
    token_ids: IntArray
    logprobs: tuple[RowLogprobs, ...]
    last: bool


@dataclass(frozen=True, slots=True)
class Matched:
    """What ended a choice: exactly one of the three is set."""

    token_id: int | None = None
    stop_index: int | None = None
    regex_index: int | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one choice. `cached_tokens` is that of its first start and never exceeds `prompt_tokens`."""

    prompt_tokens: int
    completion_tokens: int  # prior output counted
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Timings:
    """Durations since this worker received the request in nanoseconds; None where the point was never reached."""

    queue_ns: int | None
    first_token_ns: int | None
    prefill_ns: int | None  # from first start to first token
    total_ns: int


@dataclass(frozen=True, slots=True)
class Final:
    """The one last word about a choice."""

    handle: int
    reason: FinishReason
    end_position: int  # output tokens in all, prior output counted
    usage: Usage
    timings: Timings
    retractions: int = 0
    matched: Matched | None = None
    keep_bytes: int | None = None  # bytes of raw output before a text stop
    error: ErrorInfo | None = None
    cancel_cause: int = 0  # as given to `Scheduler.cancel`


@dataclass(frozen=True, slots=True)
class TurnOutput:
    """Everything one turn has to say. Per handle: accepted, started, tokens, final, in this order."""

    step_id: int  # the step whose results these are; -1 if none finished
    engine_ns: int = 0
    tokens: TokenColumns = field(default_factory=TokenColumns)
    accepted: Sequence[Accepted] = ()
    started: Sequence[Started] = ()
    prompt_logprobs: Sequence[PromptLogprobs] = ()
    finals: Sequence[Final] = ()

    def __bool__(self) -> bool:
        return bool(self.tokens.handles or self.accepted or self.started or self.prompt_logprobs or self.finals)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds in force."""

    max_running_requests: int
    max_queued_requests: int | None
    max_prefill_tokens: int
    chunked_prefill_size: int  # -1 = off
    context_tokens: int
    pool_tokens: int


@dataclass(frozen=True, slots=True)
class LoadSnapshot:
    """Load of the worker at one moment. used = pool - free - evictable (what running choices hold)."""

    running: int
    waiting: int
    waiting_prefill_tokens: int
    grammar_waiting: int
    retracted: int  # since start
    kv_used_tokens: int
    kv_evictable_tokens: int
    kv_free_tokens: int
    kv_total_tokens: int
    prefill_tokens_per_s: float
    generation_tokens_per_s: float
    decode_step_ms: float
    last_turn_ns: int  # clock reading at the end of the last turn
    new_token_ratio: float
    limits: Limits
