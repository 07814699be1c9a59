"""The scheduler: decides, turn by turn, what the engine computes next."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from services.scheduler.cache import integrity
from services.scheduler.cache.events import CacheEvents, CacheSnapshot, EventLog
from services.scheduler.cache.radix_cache import RadixCache
from services.scheduler.core import chunk_size, lifecycle, masks, memory_limits, preemption, retraction, slot_owners
from services.scheduler.core.build import build_state
from services.scheduler.core.choice import Choice
from services.scheduler.core.counters import Counters
from services.scheduler.core.decisions import Decision
from services.scheduler.core.intake import Intake
from services.scheduler.core.log_lines import CacheLine, LogLine
from services.scheduler.core.messages import Limits, LoadSnapshot, SubmitRequest, TurnOutput
from services.scheduler.core.plan import IntArray
from services.scheduler.core.planner import NO_ROWS, build_step, undo_step
from services.scheduler.core.policy import SchedulePolicy
from services.scheduler.core.prefill import PrefillRound, is_held
from services.scheduler.core.prompt_work import tokens_ahead
from services.scheduler.core.reporting import Reporter
from services.scheduler.core.results import ResultProcessor
from services.scheduler.core.settings import SchedulerConfig
from services.scheduler.core.step import Step
from services.scheduler.engine.interface import Engine, OutOfMemory


def _quiet(line: LogLine) -> None:
    return None


class Scheduler:
    """One thread calls everything: `submit`, `cancel`, `update` between turns, then `turn` while `has_work`.

    A turn ingests, picks, runs and processes: a prefill if a waiting choice can be admitted, else one decode step of
    all running choices. With overlap, a turn launches the next step before it processes the result of the last one.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        engine: Engine,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        log: Callable[[LogLine], None] = _quiet,
    ) -> None:
        """Raises ValueError for an unknown policy or a pool without room for one page."""
        self._events = EventLog(config.publish_cache_events, config.cache_epoch)
        self._state = build_state(config, engine.info, self._events, clock, log)
        self._engine = engine
        self._policy = SchedulePolicy(config)
        self._results = ResultProcessor(self._state)
        self._intake = Intake(self._state, self._results.rules)
        self._reporter = Reporter(self._state)
        self._overlap = not config.disable_overlap_schedule
        self._in_flight: Step | None = None
        self._step_id = 0
        self._decodes_owed = 0
        self._last_turn_ns = clock()

    # ------------------------------------------------------------------ what it is told

    def submit(self, request: SubmitRequest) -> None:
        """Take a request in; its choices are accepted or refused in the next output."""
        self._intake.submit(request)

    def cancel(self, handle: int, cause: int = 0, by: str = "") -> None:
        """End a choice; its final says ABORT. Unknown handles are no error."""
        self._intake.cancel(handle, cause, by)

    def update(self, handle: int, *, priority: int | None = None, deadline_ns: int | None = None) -> None:
        """Change priority or deadline of a live choice."""
        self._intake.update(handle, priority, deadline_ns)

    def flush_cache(self) -> int | None:
        """Empty the prefix cache and return the number of tokens it held; None, and nothing happens, while choices live."""
        if self.has_work:
            return None
        removed = self._state.cache.flush()
        self._state.decide("flush", tokens=removed)
        return removed

    def said(self) -> TurnOutput:
        """Take what was said since the last turn: who was accepted, refused or cancelled need not wait for the next step."""
        return self._state.output.take()

    # ------------------------------------------------------------------ the loop

    @property
    def has_work(self) -> bool:
        return bool(self._state.live) or self._in_flight is not None or bool(self._state.output.finals)

    def turn(self) -> TurnOutput:
        """One turn of the loop; returns at once if there is nothing to do."""
        state = self._state
        state.decisions.turn += 1
        state.counters.turns += 1
        self._intake.expire(state.clock())
        step = self._plan()
        launched = step is not None and self._launch(step)
        if self._overlap:
            previous, self._in_flight = self._in_flight, step if launched else None
            if previous is not None:
                self._process(previous)
            if step is not None and launched and step.needs_masks:
                self._engine.sample(masks.fill(state, step))
        elif step is not None and launched:
            self._process(step)
        if not state.live:
            state.ratio.reset()
        self._last_turn_ns = state.clock()
        return state.output.take()

    def _plan(self) -> Step | None:
        state = self._state
        prefill = self._prefill()
        decode = self._beside(prefill) if prefill.parts else self._decodable()
        if not prefill.parts and not decode.size:
            return None
        self._step_id += 1
        step = build_step(state, self._step_id, prefill.parts, decode)
        mode = step.plan.mode.name.lower()
        state.decisions.add_step(state.clock(), mode, step.prompt_tokens, step.decode_rows, prefill.room, self._decodes_owed)
        self._pace(step)
        self._reporter.launched(step, prefill.new_choices, prefill.cached_tokens)
        return step

    def _prefill(self) -> PrefillRound:
        state = self._state
        beside = len(state.batch) if state.config.enable_mixed_chunk else 0
        if self._decodes_owed and len(state.batch):
            return PrefillRound(state, 0)
        waiting = self._policy.order(state) if len(state.queue) else ()
        self._preempt_for(waiting)
        self._policy.keep_heads(state)
        attempt = PrefillRound(state, chunk_size.room(state, beside), share_prefixes=self._policy.shares_prefixes(state))
        attempt.continue_chunked(leave=self._policy.room_for_shorter(state))
        attempt.admit(waiting)
        self._intake.watch_running(attempt.started)
        return attempt

    def _preempt_for(self, waiting: Sequence[Choice]) -> None:
        """Let the first waiting choice take the place of running ones of much lower priority."""
        state, config = self._state, self._state.config
        if not config.enable_priority_scheduling or config.disable_priority_preemption:
            return
        candidate = next((choice for choice in waiting if not is_held(state, choice)), None)
        if candidate is None or not preemption.victims(state, candidate):
            return
        self._settle()
        if candidate.handle in state.live and candidate.row == 0:
            for victim in preemption.victims(state, candidate):
                state.decide("preempt", victim, f"for {candidate.request.request_id}")
                lifecycle.send_back(state, victim)
                state.counters.preemptions += 1

    def _beside(self, prefill: PrefillRound) -> IntArray:
        """Rows that decode in the same step as a prefill (mixed chunks): none if the pool has no room for all."""
        if not self._state.config.enable_mixed_chunk:
            return NO_ROWS
        rows = self._state.batch.decodable()
        rows = np.compress(~np.isin(rows, [part.row for part in prefill.parts]), rows)
        return rows if self._state.has_room_for(rows) else NO_ROWS

    def _decodable(self) -> IntArray:
        """Rows of the next decode step. Where the pool has no room, first let finishing rows leave, then retract."""
        rows = self._state.batch.decodable()
        if self._state.has_room_for(rows):
            return rows
        self._settle()
        retraction.make_room(self._state)
        return self._state.batch.decodable()

    def _pace(self, step: Step) -> None:
        """Count the decode steps owed before the next prefill. The new-token ratio falls with every decode step."""
        if step.parts:
            self._decodes_owed = chunk_size.decodes_owed(self._state, step)
        else:
            self._decodes_owed = chunk_size.decodes_left(self._state, self._decodes_owed)
            self._state.ratio.decode_step()

    def _launch(self, step: Step) -> bool:
        """Start the step; false if memory ran out, in which case its choices went back to the queue."""
        step.launched_ns = self._state.clock()
        try:
            self._engine.launch(step.plan)
        except OutOfMemory:
            self._state.changes.undo(step.plan)
            undo_step(self._state, step)
            self._settle()
            memory_limits.shrink(self._state, step)
            return False
        if not self._overlap or not step.needs_masks:
            self._engine.sample(masks.fill(self._state, step))
        return True

    def _process(self, step: Step) -> None:
        result = self._engine.collect()
        self._reporter.finished(step)
        memory_limits.recover(self._state)
        self._results.apply(step, result)

    def _settle(self) -> None:
        """Wait for the step in flight and process it, so that nothing is unknown."""
        step, self._in_flight = self._in_flight, None
        if step is not None:
            self._process(step)

    # ------------------------------------------------------------------ what it says of itself

    @property
    def counters(self) -> Counters:
        return self._state.counters

    @property
    def evicted_tokens(self) -> int:
        return self._state.cache.evicted_tokens

    @property
    def eviction_ns(self) -> int:
        return self._state.cache.eviction_ns

    @property
    def next_timer_ns(self) -> int | None:
        """When a turn is due though no choice can run: the next deadline or time limit."""
        return self._intake.next_timer_ns

    def load(self) -> LoadSnapshot:
        """The load right now."""
        state, counters = self._state, self._state.counters
        return LoadSnapshot(
            running=state.occupied,
            waiting=len(state.queue),
            waiting_prefill_tokens=tokens_ahead(state, self._in_flight),
            grammar_waiting=sum(1 for choice in state.queue if choice.grammar is not None and not choice.grammar.ready),
            retracted=counters.retractions,
            kv_used_tokens=state.cache.used_tokens,
            kv_evictable_tokens=state.cache.prefixes.evictable_tokens,
            kv_free_tokens=state.cache.free_tokens,
            kv_total_tokens=state.cache.capacity,
            prefill_tokens_per_s=counters.prefill_tokens_per_s,
            generation_tokens_per_s=counters.generation_tokens_per_s,
            decode_step_ms=counters.decode_step_ms,
            last_turn_ns=self._last_turn_ns,
            new_token_ratio=state.ratio.value,
            limits=self.limits,
        )

    @property
    def limits(self) -> Limits:
        state, config = self._state, self._state.config
        return Limits(
            max_running_requests=state.running_bound,
            max_queued_requests=config.max_queued_requests,
            max_prefill_tokens=max(config.max_prefill_tokens, state.info.context_length),
            chunked_prefill_size=state.chunk_bound,
            context_tokens=state.info.context_length,
            pool_tokens=state.cache.capacity,
        )

    def cache_line(self, source: str) -> CacheLine:
        """Says which prefix cache this is; `source` tells who chose it."""
        cache, config = self._state.cache, self._state.config
        policy = config.radix_eviction_policy if cache.prefixes.enabled else "none"
        return CacheLine(source, type(cache.prefixes).__name__, policy, tuple(group.name for group in cache.groups))

    def decisions(self, count: int) -> Sequence[Decision]:
        """The newest decisions, newest last."""
        return self._state.decisions.last(count)

    def slot_owners(self, slot: int) -> Sequence[str]:
        """Who uses a slot of the pool, in words; empty if it is free."""
        return slot_owners.owners(self._state, slot)

    def drain_cache_events(self) -> CacheEvents:
        """Changes of the prefix cache since the last call."""
        return self._events.drain()

    def cache_snapshot(self) -> CacheSnapshot:
        """All cached blocks, and the number of the event that comes next."""
        prefixes = self._state.cache.prefixes
        blocks = prefixes.blocks() if isinstance(prefixes, RadixCache) else []
        return CacheSnapshot(self._events.epoch, self._events.next_seq, blocks)

    def check_integrity(self) -> None:
        """Raise IntegrityError unless every slot has exactly one owner. Walks the whole pool: for tests and canaries."""
        integrity.check(self._state.cache)
