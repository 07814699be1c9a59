"""Takes the result of a step: new tokens, finish decisions, cache commits, output."""

from __future__ import annotations

import numpy as np

from services.scheduler.core import lifecycle
from services.scheduler.core.choice import Choice
from services.scheduler.core.jump_forward import jump
from services.scheduler.core.messages import ErrorCode, ErrorInfo, FinishReason, PromptLogprobs
from services.scheduler.core.plan import IntArray, StepResult
from services.scheduler.core.state import State
from services.scheduler.core.step import PrefillPart, Step
from services.scheduler.core.stops import StopRules


class ResultProcessor:
    """Applies results to the state. Rows that left their choice since the step was planned are passed over."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.rules = StopRules(state.info.vocab_size, state.info.eos_token_ids)

    def apply(self, step: Step, result: StepResult) -> None:
        state, batch = self._state, self._state.batch
        state.output.step_id = result.step_id
        state.output.engine_ns = result.device_ns
        now = state.clock()
        for part, generation in zip(step.parts, step.part_generations.tolist(), strict=True):
            if batch.generation[part.row] == generation:
                self._prefilled(part, result, now)
        rows, ids = step.sampled_rows, result.token_ids
        alive = batch.generation[rows] == step.generations
        if not alive.all():
            state.counters.discarded_tokens += int(np.count_nonzero(~alive))
            rows, ids = rows[alive], ids[alive]
        batch.in_flight[rows] -= 1
        rows, ids = self._without_failed(rows, ids, result)
        rows, ids = self._without_invalid(rows, ids, result)
        if rows.size:
            self._take_tokens(rows, ids, result)
        for part, generation in zip(step.parts, step.part_generations.tolist(), strict=True):
            if part.is_last and not part.samples and batch.generation[part.row] == generation:
                lifecycle.end(state, batch.choice(part.row), FinishReason.LENGTH)

    def _prefilled(self, part: PrefillPart, result: StepResult, now: int) -> None:
        state, batch = self._state, self._state.batch
        choice = batch.choice(part.row)
        if part.row not in result.invalid:
            end = min(part.end, choice.prompt_len) if state.config.strip_thinking_cache else part.end
            write = state.cache.commit(part.row, batch.tokens[part.row, :end], choice.priority)
            if write is not None:
                state.changes.writes.append(write)
        if part.is_last:
            choice.prefilled = True
            if part.samples and choice.first_token_ns is None:
                choice.first_token_ns = now
        if part.logprobs_from is not None:
            self._say_prompt_logprobs(choice, part, result)

    def _say_prompt_logprobs(self, choice: Choice, part: PrefillPart, result: StepResult) -> None:
        first = max(part.logprobs_from or 0, part.start, 1)
        prompt = choice.request.prompt_ids
        values = result.prompt_logprobs.get(part.row, ())[: max(choice.prompt_len - first, 0)]
        last = part.end >= choice.prompt_len
        choice.prompt_logprobs_next = None if last else first + len(values)
        if values or last:
            ids = prompt[first : first + len(values)]
            self._state.output.prompt_logprobs.append(PromptLogprobs(choice.handle, first, ids, values, last))

    def _without_failed(self, rows: IntArray, ids: IntArray, result: StepResult) -> tuple[IntArray, IntArray]:
        """End the rows whose logit processor failed; returns the others. The model's part of them is sound."""
        if not result.failed:
            return rows, ids
        failed = np.isin(rows, list(result.failed))
        for row in rows[failed].tolist():
            error = ErrorInfo(ErrorCode.INTERNAL, result.failed[row], "sampling.custom_logit_processor")
            lifecycle.end(self._state, self._state.batch.choice(row), FinishReason.ERROR, error=error)
        return rows[~failed], ids[~failed]

    def _without_invalid(self, rows: IntArray, ids: IntArray, result: StepResult) -> tuple[IntArray, IntArray]:
        """End the rows whose logits were not finite or whose id is no token; returns the others.

        What the cache has of such a prompt goes too: it may be what spoils the output, and would spoil it for ever.
        """
        good = self.rules.valid(ids)
        if result.invalid:
            good &= ~np.isin(rows, result.invalid)
        if good.all():
            return rows, ids
        for row in rows[~good].tolist():
            self._state.counters.invalid_outputs += 1
            error = ErrorInfo(ErrorCode.INTERNAL, "The model produced no valid token: its output was not finite or out of the vocabulary")
            choice = self._state.batch.choice(row)
            lifecycle.end(self._state, choice, FinishReason.ERROR, error=error, keep_cache=False)
            self._state.cache.forget(choice.request.namespace, choice.fill)
        return rows[good], ids[good]

    def _take_tokens(self, rows: IntArray, ids: IntArray, result: StepResult) -> None:
        state, batch = self._state, self._state.batch
        batch.tokens[rows, batch.prompt_len[rows] + batch.out_len[rows]] = ids
        batch.out_len[rows] += 1
        state.counters.generated_tokens += rows.size
        stops = self.rules.after_step(batch, rows, ids)
        jumped = jump(state, self.rules, rows, stops)
        self._say_tokens(rows, result, jumped)
        for row, stop in stops:
            error = None
            if stop.reason is FinishReason.ERROR:
                error = constraint_error(batch.choice(row))
            lifecycle.end(state, batch.choice(row), stop.reason, matched=stop.matched, keep_bytes=stop.keep_bytes, error=error)

    def _say_tokens(self, rows: IntArray, result: StepResult, jumped: list[int]) -> None:
        """Rows with logprobs or a stream interval collect tokens; the rest say theirs at once, the `jumped` ones several."""
        batch, output = self._state.batch, self._state.output
        special = batch.logprobs[rows] | (batch.interval[rows] > 1)
        if jumped:
            special |= np.isin(rows, jumped)
        if not special.any():
            output.add_tokens(batch, rows)
            return
        output.add_tokens(batch, rows[~special])
        for row in rows[special].tolist():
            choice = batch.choice(row)
            if choice.sampling.logprobs:
                choice.pending_logprobs.append(result.logprobs[row])
            held = int(batch.out_len[row] - batch.emitted[row])
            first = int(batch.emitted[row]) == choice.spec.prior_output_ids.size
            if first or held >= batch.interval[row]:
                output.add_held_tokens(batch, row)


def constraint_error(choice: Choice) -> ErrorInfo:
    """Why a constrained choice cannot go on."""
    if choice.grammar is not None and choice.grammar.error is not None:
        return ErrorInfo(ErrorCode.INVALID_REQUEST, choice.grammar.error, choice.grammar.error_field or "constraint")
    return ErrorInfo(ErrorCode.INTERNAL, "The sampled token is not allowed by the request's constraint")
