"""Log lines and rates of the steps that ran."""

from __future__ import annotations

from services.scheduler.core.counters import smoothed
from services.scheduler.core.log_lines import DecodeLine, PrefillLine
from services.scheduler.core.state import State
from services.scheduler.core.step import Step

_NS = 1e9
_TELLING_TOKENS = 64  # a shorter prefill takes as long as a decode step and says nothing about speed


class Reporter:
    """Counts steps; says one line per prefill step and one per `decode_log_interval` decode steps."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._prefill_line_ns = self._decode_line_ns = state.clock()
        self._generated_at_line = 0

    def launched(self, step: Step, new_choices: int, cached_tokens: int) -> None:
        """A step is on its way."""
        state, counters = self._state, self._state.counters
        if step.parts:
            tokens = step.prompt_tokens
            counters.computed_prompt_tokens += tokens
            counters.prefill_steps += 1
            counters.mixed_steps += step.decode_rows > 0
            now = state.clock()
            seconds = max(now - self._prefill_line_ns, 1) / _NS
            self._prefill_line_ns = now
            pending = state.chunked.fill.size - int(state.batch.scheduled[state.chunked.row]) if state.chunked else 0
            state.log(
                PrefillLine(
                    new_seq=new_choices,
                    new_token=tokens,
                    cached_token=cached_tokens,
                    token_usage=state.token_usage,
                    running=step.decode_rows or max(len(state.batch) - sum(part.samples for part in step.parts), 0),
                    queue=len(state.queue),
                    pending_token=state.queue.tokens + pending,
                    cuda_graph=False,
                    input_throughput=tokens / seconds,
                )
            )
        else:
            counters.decode_steps += 1
            if counters.decode_steps % state.config.decode_log_interval == 0:
                self._decode_line()

    def finished(self, step: Step) -> None:
        """A step's result is in."""
        state, counters = self._state, self._state.counters
        elapsed = max(state.clock() - step.launched_ns, 1)
        tokens = step.prompt_tokens
        if state.config.itl_target_ms is not None:
            state.pace.observe(tokens, step.decode_rows, elapsed / 1e6, state.config.itl_target_ms)
        if step.decode_rows:
            decode_ms = state.pace.decode_ms if tokens else elapsed / 1e6
            counters.decode_step_ms = smoothed(counters.decode_step_ms, decode_ms or counters.decode_step_ms)
            counters.generation_tokens_per_s = smoothed(counters.generation_tokens_per_s, step.decode_rows / elapsed * _NS)
        if tokens >= _TELLING_TOKENS:
            counters.prefill_tokens_per_s = smoothed(counters.prefill_tokens_per_s, tokens / elapsed * _NS)

    def _decode_line(self) -> None:
        state = self._state
        now, generated = state.clock(), state.counters.generated_tokens
        seconds = max(now - self._decode_line_ns, 1) / _NS
        throughput = (generated - self._generated_at_line) / seconds
        self._decode_line_ns, self._generated_at_line = now, generated
        running = len(state.batch)
        tokens = int(state.batch.scheduled[state.batch.rows].sum())
        state.log(DecodeLine(running, tokens, state.token_usage, False, throughput, len(state.queue)))
