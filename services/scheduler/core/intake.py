"""Takes requests in, and ends those that are refused, cancelled or out of time."""

from __future__ import annotations

from collections.abc import Iterable

from services.scheduler.core import lifecycle
from services.scheduler.core.choice import Choice
from services.scheduler.core.messages import Accepted, ErrorCode, ErrorInfo, FinishReason, SubmitRequest
from services.scheduler.core.results import constraint_error
from services.scheduler.core.state import State
from services.scheduler.core.stops import StopRules
from services.scheduler.core.timers import Timer, Timers

_NS = 1_000_000_000


class Intake:
    """Every submitted choice is accepted and lives on, or gets its final at once."""

    def __init__(self, state: State, rules: StopRules) -> None:
        self._state = state
        self._rules = rules
        self._timers = Timers()
        self._sequence = 0
        self._eos = frozenset(state.info.eos_token_ids)

    def submit(self, request: SubmitRequest) -> None:
        """Raises ValueError if a handle is in use: the caller chose it."""
        state = self._state
        for spec in request.choices:
            if spec.handle in state.live:
                raise ValueError(f"request {request.request_id}: a handle is in use already")
        now = state.clock()
        leader: Choice | None = None
        for spec in request.choices:
            self._sequence += 1
            state.counters.submitted += 1
            length = state.info.context_length
            choice = Choice(request, spec, self._sequence, now, length, self._eos, self._priority(request))
            choice.seen_prefill = state.counters.computed_prompt_tokens
            error = self._fault(choice) or self._overload(choice)
            if error:
                lifecycle.refuse(state, choice, error)
                continue
            self._accept(choice, now)
            if choice.handle in state.live:
                choice.leader = leader
                leader = leader or choice

    def cancel(self, handle: int, cause: int, by: str) -> None:
        """End a choice; unknown and finished handles are no error."""
        choice = self._state.live.get(handle)
        if choice is None:
            return
        error = ErrorInfo(ErrorCode.CANCELLED, f"cancelled{f' by {by}' if by else ''}")
        lifecycle.end(self._state, choice, FinishReason.ABORT, error=error, cancel_cause=cause)

    def update(self, handle: int, priority: int | None, deadline_ns: int | None) -> None:
        """Change a live choice's priority or deadline."""
        choice = self._state.live.get(handle)
        if choice is None:
            return
        if priority is not None and self._state.config.enable_priority_scheduling:
            choice.priority = self._signed(priority)
            self._state.queue.version += 1
        if deadline_ns is not None:
            choice.deadline_ns = deadline_ns
            self._timers.add(deadline_ns, Timer.DEADLINE, choice.handle)

    def watch_running(self, started: Iterable[Choice]) -> None:
        """Bound the running time of choices that were just started."""
        limit = self._state.config.req_running_timeout_s
        if limit is not None:
            due = self._state.clock() + int(limit * _NS)
            for choice in started:
                self._timers.add(due, Timer.RUNNING, choice.handle)

    def expire(self, now: int) -> None:
        """End everything whose time is over."""
        self._timers.prune(self._state.live)
        for due, kind, handle in self._timers.due(now):
            choice = self._state.live.get(handle)
            if choice is not None and (error := self._timeout(choice, kind, due)):
                lifecycle.end(self._state, choice, FinishReason.ABORT, error=error)

    @property
    def next_timer_ns(self) -> int | None:
        """When `expire` may next have something to do."""
        return self._timers.next_ns

    # ------------------------------------------------------------------ inside

    def _accept(self, choice: Choice, now: int) -> None:
        state, config = self._state, self._state.config
        state.live[choice.handle] = choice
        choice.places_before = state.queue.add(choice)
        expected = state.waits.expected_ns(choice.places_before)
        state.output.accepted.append(Accepted(choice.handle, choice.places_before, expected))
        if choice.deadline_ns is not None:
            self._timers.add(choice.deadline_ns, Timer.DEADLINE, choice.handle)
        if config.req_waiting_timeout_s is not None and not is_resumed(choice):
            self._timers.add(choice.arrival_ns + int(config.req_waiting_timeout_s * _NS), Timer.WAITING, choice.handle)
        self._replay(choice)

    def _replay(self, choice: Choice) -> None:
        """Rebuild what depends on earlier output; end the choice if that output was complete."""
        stop = None
        for position, token in enumerate(choice.spec.prior_output_ids.tolist(), 1):
            stop = stop or self._rules.after_token(choice, token, position)
        if stop is not None:
            error = constraint_error(choice) if stop.reason is FinishReason.ERROR else None
            lifecycle.end(self._state, choice, stop.reason, matched=stop.matched, keep_bytes=stop.keep_bytes, error=error)
        elif choice.out_len >= choice.max_new and choice.prompt_logprobs_next is None:
            lifecycle.end(self._state, choice, FinishReason.LENGTH)

    def _fault(self, choice: Choice) -> ErrorInfo | None:
        """What is wrong with the request itself."""
        state, request, spec = self._state, choice.request, choice.spec
        prompt, prior = choice.prompt_len, choice.out_len
        context, pool = state.info.context_length, state.cache.capacity
        if not prompt:
            return ErrorInfo(ErrorCode.INVALID_REQUEST, "the prompt is empty", "prompt.token_ids")
        for ids, name in ((request.prompt_ids, "prompt.token_ids"), (spec.prior_output_ids, "choices.prior_output_ids")):
            if ids.size and not self._rules.valid(ids).all():
                return ErrorInfo(ErrorCode.INVALID_REQUEST, f"a token id is not below the vocabulary size {state.info.vocab_size}", name)
        if request.priority is not None and not state.config.enable_priority_scheduling and state.config.abort_on_priority_when_disabled:
            return ErrorInfo(ErrorCode.INVALID_REQUEST, "priorities are not enabled on this server", "priority")
        if prompt + prior > context or (prompt == context and choice.request.stops.max_new_tokens > 0):
            message = f"the prompt has {prompt} tokens, which leaves no room for output in the context of {context} tokens"
            return ErrorInfo(ErrorCode.CONTEXT_LENGTH_EXCEEDED, message, "prompt.token_ids")
        if state.cache.whole_pages(prompt + prior + 1) > pool:
            message = f"the prompt has {prompt + prior} tokens; this server's KV pool holds {pool} and can never fit it"
            return ErrorInfo(ErrorCode.CONTEXT_LENGTH_EXCEEDED, message, "prompt.token_ids")
        return None

    def _overload(self, choice: Choice) -> ErrorInfo | None:
        """Refuse because the queue is full, unless a waiting choice of lower priority can give up its place."""
        state, most = self._state, self._state.config.max_queued_requests
        if most is None or len(state.queue) < most or is_resumed(choice):
            return None
        error = ErrorInfo(
            ErrorCode.OVERLOADED,
            f"the queue is full: {most} requests wait",
            retry_after_ms=state.waits.retry_after_ms(len(state.queue)),
            safe_to_retry=True,
        )
        if state.config.enable_priority_scheduling:
            may_go = (waiting for waiting in state.queue if not is_resumed(waiting))
            worst = min(may_go, key=lambda waiting: (waiting.priority, -waiting.arrival_ns, -waiting.sequence), default=None)
            if worst is not None and worst.priority < choice.priority:
                lifecycle.end(state, worst, FinishReason.ABORT, error=error)
                return None
        return error

    def _timeout(self, choice: Choice, kind: Timer, due: int) -> ErrorInfo | None:
        """The error of a timer that went off, None if it no longer applies."""
        if kind is Timer.DEADLINE and choice.deadline_ns == due:
            return ErrorInfo(ErrorCode.DEADLINE_EXCEEDED, "the request's deadline has passed")
        config, retry_after_ms = self._state.config, self._state.waits.retry_after_ms(len(self._state.queue))
        if kind is Timer.WAITING and choice.started_ns is None:
            message = f"the request waited longer than {config.req_waiting_timeout_s} s"
            return ErrorInfo(ErrorCode.OVERLOADED, message, retry_after_ms=retry_after_ms, safe_to_retry=True)
        if kind is Timer.RUNNING:
            message = f"the request ran longer than {config.req_running_timeout_s} s"
            return ErrorInfo(ErrorCode.OVERLOADED, message, retry_after_ms=retry_after_ms)
        return None

    def _priority(self, request: SubmitRequest) -> int:
        config = self._state.config
        if not config.enable_priority_scheduling:
            return 0
        return self._signed(config.default_priority_value if request.priority is None else request.priority)

    def _signed(self, priority: int) -> int:
        """Inside the scheduler a higher priority always goes first."""
        return -priority if self._state.config.schedule_low_priority_values_first else priority


def is_resumed(choice: Choice) -> bool:
    """Its request goes on from output that a client may have seen: it is never sent away for want of room or patience."""
    return any(spec.prior_output_ids.size for spec in choice.request.choices)
