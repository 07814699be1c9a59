"""Builds the prefill part of a step: continues the chunked prompt, then admits waiting choices."""

from __future__ import annotations

from collections.abc import Sequence

from services.scheduler.cache.interface import PrefixMatch
from services.scheduler.core import forecast, lifecycle
from services.scheduler.core.choice import Choice
from services.scheduler.core.messages import ErrorCode, ErrorInfo, FinishReason, Started
from services.scheduler.core.plan import RowStart
from services.scheduler.core.policy import hit_length
from services.scheduler.core.sharing import RoundPrefixes
from services.scheduler.core.state import State
from services.scheduler.core.step import PrefillPart


class PrefillRound:
    """One turn's attempt to prefill at most `chunk_room` tokens.

    A waiting choice is admitted when its uncached prompt, its clipped output budget and one page fit into free and
    evictable slots minus what running choices are expected to need. With nothing running the prompt alone must fit.
    """

    def __init__(self, state: State, chunk_room: int, *, share_prefixes: bool = False) -> None:
        self._state = state
        self._page = state.cache.page_size
        self.room = self._chunk_room = chunk_room
        self._shared = RoundPrefixes() if share_prefixes and state.cache.prefixes.enabled else None
        self._prompt_room = max(state.config.max_prefill_tokens, state.info.context_length)
        self._reserved = 0.0  # tokens the running choices are expected to need, those of this round included
        self.parts: list[PrefillPart] = []
        self.started: list[Choice] = []  # for the first time
        self.new_choices = 0
        self.cached_tokens = 0

    def continue_chunked(self, leave: int = 0) -> None:
        """Plan the next chunk of the partly planned prompt, if there is one; `leave` tokens of room are for others."""
        choice = self._state.chunked
        if choice is None:
            return
        start = int(self._state.batch.scheduled[choice.row])
        room = max(self._chunk_room - leave, self._page)
        count = self._chunk(choice.fill.size - start, room)
        if count:
            self._plan_part(choice, start, count)
        if self._shared is not None:
            self._shared.add(choice)
        holders = len(self._state.live) - len(self._state.queue)
        if not self.parts and holders == 1:
            lifecycle.end(self._state, choice, FinishReason.ABORT, error=lifecycle.out_of_pool())

    def admit(self, candidates: Sequence[Choice]) -> None:
        """Admit from `candidates` in their order until something does not fit."""
        if candidates:
            self._reserved = forecast.running_reservation(self._state) + forecast.chunked_reservation(self._state)
        for choice in candidates:
            if is_held(self._state, choice) or self._waits_for_prefix(choice) or self._lacks_grammar(choice):
                continue
            reason = self._limit() or self._try(choice)
            if reason:
                self._state.decide("skip", choice, reason)
                return

    def _limit(self) -> str:
        state = self._state
        most = state.config.prefill_max_requests
        free = state.running_bound - state.occupied
        if free <= 0 or not state.cache.rows.free:
            return "max_running_requests"
        if state.occupied and not self.new_choices and free < min(state.config.min_free_slots_delay, state.running_bound):
            return "min_free_slots_delay"
        if most is not None and self.new_choices >= most:
            return "prefill_max_requests"
        return ""

    def _try(self, choice: Choice) -> str:
        """Admit the choice, or say what it does not fit into."""
        state = self._state
        match = state.cache.acquire(choice.request.namespace, choice.fill[: choice.match_limit])
        uncached = choice.fill.size - match.length
        alone = not self.parts and not state.occupied
        needed = uncached + self._page + (0 if alone else forecast.output_estimate(state, choice))
        if needed > state.cache.available_tokens - self._reserved:
            state.cache.abandon(match)
            if alone:
                lifecycle.end(state, choice, FinishReason.ABORT, error=lifecycle.out_of_pool())
                return ""
            return "kv_pool"
        if self.parts and uncached > self._prompt_room:
            state.cache.abandon(match)
            return "max_prefill_tokens"
        count = self._chunk(uncached, self._chunk_room)
        if not count or (count < uncached and state.chunked is not None):
            state.cache.abandon(match)
            return "chunked_prefill_size"
        self._start(choice, match, count)
        return ""

    def _chunk(self, wanted: int, room: int) -> int:
        """Tokens of the next `wanted` that `room` takes; whole pages if not all."""
        return wanted if wanted <= room else room // self._page * self._page

    def _lacks_grammar(self, choice: Choice) -> bool:
        """End a choice whose grammar could not be compiled: it never runs without."""
        if choice.grammar is None or choice.grammar.error is None:
            return False
        error = ErrorInfo(ErrorCode.INVALID_REQUEST, choice.grammar.error, choice.grammar.error_field or "constraint")
        lifecycle.end(self._state, choice, FinishReason.ERROR, error=error)
        return True

    def _waits_for_prefix(self, choice: Choice) -> bool:
        """A prompt of this round will put more of the choice's prompt into the cache than it would find now."""
        return self._shared is not None and self._shared.saves(choice, hit_length(self._state, choice))

    def _start(self, choice: Choice, match: PrefixMatch, count: int) -> None:
        state = self._state
        state.queue.remove(choice)
        row, write = state.cache.start(match)
        state.batch.place(choice, row, match.length)
        if write is not None:
            state.changes.writes.append(write)
        prompt_len = choice.prompt_len
        state.changes.starts.append(RowStart(row, choice.sampling, choice.fill[:prompt_len], choice.fill[prompt_len:]))
        self._announce(choice, match.length)
        if self._shared is not None:
            self._shared.add(choice)
        self.new_choices += 1
        self.cached_tokens += match.length
        self._reserved += forecast.output_estimate(state, choice) + self._page
        self._plan_part(choice, match.length, count)
        if state.chunked is choice:
            self._reserved += choice.fill.size - match.length - count
        kind = "chunk" if state.chunked is choice else "admit"
        state.decide(kind, choice, new_tokens=count, cached_tokens=match.length, reserved=self._reserved)

    def _announce(self, choice: Choice, cached: int) -> None:
        state = self._state
        if choice.started_ns is not None:
            state.counters.recomputed_tokens += choice.fill.size - cached
            return
        choice.started_ns = state.clock()
        self.started.append(choice)
        choice.cached_tokens = min(cached, choice.prompt_len)
        state.counters.prompt_tokens += choice.prompt_len
        state.counters.cached_tokens += choice.cached_tokens
        queued = max(choice.started_ns - choice.received_ns, 0)
        state.waits.observe(queued, choice.places_before)
        state.output.started.append(Started(choice.handle, choice.prompt_len, choice.cached_tokens, queued, choice.cache_limit))

    def _plan_part(self, choice: Choice, start: int, count: int) -> None:
        state, row, end = self._state, choice.row, start + count
        slots = state.cache.extend(row, start, count)
        if slots is None:
            return
        is_last = end == choice.fill.size
        samples = is_last and choice.wants_tokens
        state.batch.scheduled[row] = end
        if not is_last:
            state.chunked = choice
        elif state.chunked is choice:
            state.chunked = None
        if samples:
            state.batch.in_flight[row] += 1
            state.batch.join(row)
        self._chunk_room -= count
        self._prompt_room -= count
        self.parts.append(PrefillPart(row, start, end, is_last, samples, slots, choice.prompt_logprobs_next))


def is_held(state: State, choice: Choice) -> bool:
    """It waits for a sibling to compute their common prompt, or for its grammar to be compiled."""
    leader = choice.leader
    if leader is not None:
        if state.cache.prefixes.enabled and not leader.prefilled and leader.handle in state.live:
            return True
        choice.leader = None
    return choice.grammar is not None and not choice.grammar.ready and choice.grammar.error is None
