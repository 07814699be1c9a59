"""Turns what was picked into the plan of one step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from services.scheduler.core.plan import ForwardMode, IntArray, StepPlan
from services.scheduler.core.state import State
from services.scheduler.core.step import PrefillPart, Step

NO_ROWS: IntArray = np.empty(0, np.int32)


def build_step(state: State, step_id: int, parts: Sequence[PrefillPart], decode: IntArray) -> Step:
    """A step of prefill parts, then the next tokens of each of the `decode` rows. Advances the rows' schedules."""
    batch = state.batch
    rows, prefixes = decode, batch.scheduled[decode]
    ends, sampled = batch.next_ends(decode), np.ones(decode.size, np.bool_)
    lengths: IntArray = ends - prefixes
    given = [(index + len(parts), int(lengths[index]) - 1) for index in np.flatnonzero(lengths > 1).tolist()]
    inputs, slots = _next_spans(state, decode, prefixes, ends) if given else _next_tokens(state, decode, prefixes)
    if parts:
        rows = _joined([part.row for part in parts], rows)
        lengths = _joined([part.count for part in parts], lengths)
        prefixes = _joined([part.start for part in parts], prefixes)
        inputs = np.concatenate([*(batch.tokens[part.row, part.start : part.end] for part in parts), inputs])
        slots = np.concatenate([*(part.slots for part in parts), slots])
        sampled = np.concatenate([np.array([part.samples for part in parts], np.bool_), sampled])
    released, starts, writes = state.changes.take()
    plan = StepPlan(
        step_id=step_id,
        mode=_mode(bool(parts or given), bool(decode.size)),
        rows=rows,
        extend_lens=lengths,
        prefix_lens=prefixes,
        input_ids=inputs,
        out_slots=slots,
        sampled=sampled,
        row_starts=starts,
        released_rows=released,
        table_writes=writes,
        prompt_logprobs=tuple((index, part.logprobs_from) for index, part in enumerate(parts) if part.logprobs_from is not None),
        given=tuple(given),
    )
    sampled_rows = rows[sampled]
    return Step(
        plan=plan,
        parts=tuple(parts),
        part_generations=batch.generation[[part.row for part in parts]],
        sampled_rows=sampled_rows,
        generations=batch.generation[sampled_rows],
        decode_rows=decode.size,
        needs_masks=bool(batch.constrained[sampled_rows].any()),
    )


def undo_step(state: State, step: Step) -> None:
    """Take the rows' schedules back to where they were before the step, which did not run."""
    state.batch.scheduled[step.plan.rows] = step.plan.prefix_lens
    state.batch.in_flight[step.sampled_rows] -= 1


def _next_tokens(state: State, rows: IntArray, positions: IntArray) -> tuple[IntArray, IntArray]:
    """Input id and slot of each row's next token; advances the rows' schedules."""
    batch = state.batch
    inputs = batch.next_inputs(rows)
    slots = state.cache.extend_each(rows, positions)
    assert slots is not None, "room for a decode step was checked before"
    batch.scheduled[rows] = positions + 1
    batch.in_flight[rows] += 1
    return inputs, slots


def _next_spans(state: State, rows: IntArray, starts: IntArray, ends: IntArray) -> tuple[IntArray, IntArray]:
    """As `_next_tokens`, for rows of which some have several known tokens to compute."""
    batch = state.batch
    inputs, slots = [], []
    placeholders = batch.next_inputs(rows)
    for index, (row, start, end) in enumerate(zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True)):
        own = state.cache.extend(row, start, end - start)
        assert own is not None, "room for a decode step was checked before"
        slots.append(own)
        inputs.append(batch.tokens[row, start:end] if end - start > 1 else placeholders[index : index + 1])
    batch.scheduled[rows] = ends
    batch.in_flight[rows] += 1
    return np.concatenate(inputs), np.concatenate(slots)


def _mode(prefills: bool, decodes: bool) -> ForwardMode:
    if prefills and decodes:
        return ForwardMode.MIXED
    return ForwardMode.EXTEND if prefills else ForwardMode.DECODE


def _joined(first: list[int], rest: IntArray) -> IntArray:
    return np.concatenate([np.array(first, np.int32), rest])
