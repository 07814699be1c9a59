"""Choose one token per row: penalties, masks, filters, draws, log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from services.scheduler.core.plan import IntArray, RowLogprobs
from services.scheduler.engine.distribution import RowWorkspace
from services.scheduler.engine.draw import Purpose, uniforms
from services.scheduler.engine.row_state import RowState
from services.scheduler.logit_processors.interface import FloatRow
from services.scheduler.logit_processors.row import ProcessorFailed


@dataclass(slots=True)
class Sampled:
    """Token of every row; `invalid` holds indices of rows whose logits allowed no choice, `failed` why a processor did."""

    token_ids: IntArray  # [S]
    invalid: list[int] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)
    logprobs: dict[int, RowLogprobs] = field(default_factory=dict)  # by index of the row


class Sampler:
    """Works row by row, so a row's token depends on its own logits and state only, whatever the batch."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._workspace = RowWorkspace(vocab_size)

    def sample(self, logits: npt.NDArray[np.float32], states: Sequence[RowState], masks: npt.NDArray[np.int32] | None) -> Sampled:
        """Sample from `logits` [S, vocab], which it may change. `masks` [S, ceil(vocab / 32)] allow ids, bit by bit.

        Each state moves on by the sampled token, except those of invalid and failed rows.
        """
        sampled = Sampled(logits.argmax(axis=1).astype(np.int32))
        draws = _uniforms(states)
        for index, state in enumerate(states):
            mask = masks[index] if masks is not None and state.spec.constrained else None
            if not state.greedy or state.edits_logits or state.wants_logprobs or mask is not None:
                self._sample_row(index, logits[index], state, mask, draws[index], sampled)
            elif not np.isfinite(logits[index, sampled.token_ids[index]]):
                sampled.invalid.append(index)
        for index, state in enumerate(states):
            if index not in sampled.invalid and index not in sampled.failed:
                state.accept(int(sampled.token_ids[index]))
        return sampled

    def _sample_row(self, index: int, logits: FloatRow, state: RowState, mask: IntArray | None, uniform: float, sampled: Sampled) -> None:
        spec = state.spec
        scaled = state.wants_logprobs and spec.scaled_logprobs
        untouched = logits.copy() if state.wants_logprobs and not scaled else logits
        if not np.isfinite(logits.max()):
            sampled.invalid.append(index)
            return
        try:
            state.edit(logits)
        except ProcessorFailed as failure:
            sampled.failed[index] = str(failure)
            return
        if mask is not None:
            logits[~self._allowed(mask)] = -np.inf
        if not np.isfinite(logits.max()):
            if state.processor is not None:
                sampled.failed[index] = state.processor.left_nothing()
            else:
                sampled.invalid.append(index)
            return
        token = int(logits.argmax()) if state.greedy else self._workspace.draw(logits, spec, state.scale, uniform)
        sampled.token_ids[index] = token
        if state.wants_logprobs:
            sampled.logprobs[index] = self._workspace.logprobs(logits if scaled else untouched, spec, state.scale if scaled else 1.0, token)

    def prompt_logprobs(self, logits: FloatRow, state: RowState, token: int) -> RowLogprobs:
        """Untempered log-probabilities (tempered where the row asks) of prompt token `token` under `logits` [vocab]."""
        scale = state.scale if state.spec.scaled_logprobs else 1.0
        return self._workspace.logprobs(logits, state.spec, scale, token)

    def _allowed(self, mask: IntArray) -> npt.NDArray[np.bool_]:
        bits = np.unpackbits(np.ascontiguousarray(mask, "<i4").view(np.uint8), bitorder="little")
        return bits[: self._vocab_size].view(np.bool_)


def _uniforms(states: Sequence[RowState]) -> npt.NDArray[np.float64]:
    """One draw per row; rows that do not draw cost nothing more than their place."""
    out = np.zeros(len(states))
    drawing = [index for index, state in enumerate(states) if not state.greedy]
    if drawing:
        seeds = np.array([states[i].spec.seed for i in drawing], np.uint64)
        choices = np.array([states[i].spec.choice for i in drawing], np.uint64)
        positions = np.array([states[i].position for i in drawing], np.uint64)
        out[drawing] = uniforms(seeds, choices, positions, Purpose.SAMPLE)
    return out
