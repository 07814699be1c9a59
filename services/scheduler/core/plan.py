"""What a scheduler turn decided, as plain values an engine can execute.

A `StepPlan` holds numbers and arrays only, never a request object, so that it can be broadcast to other ranks
or sent to an engine in another process. The engine keeps what must outlive a step (the request-to-token table and
the sampling state of each row) and the plan carries the changes to it.

Rows: `row` is an index into the request-to-token table, 1..max_running; row 0 is padding. A row belongs to one
running choice from its `RowStart` until its id appears in `released_rows`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int32]


class ForwardMode(IntEnum):
    """Kind of forward pass a step runs."""

    IDLE = 0
    EXTEND = 1
    DECODE = 2
    MIXED = 3


@dataclass(frozen=True, slots=True)
class SamplingSpec:
    """Sampling parameters of one row, already validated. Neutral values switch a feature off."""

    temperature: float = 1.0  # 0.0 = greedy
    top_p: float = 1.0
    top_k: int = -1  # -1 = whole vocabulary
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    min_new_tokens: int = 0
    seed: int = 0  # unsigned 64 bit; draws are keyed by (seed, choice, output position, purpose)
    choice: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()
    suppress_until_min: tuple[int, ...] = ()  # ids that may not appear before min_new_tokens
    logprobs: bool = False
    top_logprobs: int = 0
    logprob_ids: tuple[int, ...] = ()
    scaled_logprobs: bool = False  # log_softmax(logits / temperature) instead of the untempered values
    processor: tuple[str, str] | None = None  # name of a logit processor and its parameters, JSON text
    constrained: bool = False  # a vocabulary mask accompanies every sample of this row


@dataclass(frozen=True, slots=True)
class RowStart:
    """State an engine needs before a row's first forward pass (or after a retraction, a resume)."""

    row: int
    sampling: SamplingSpec
    prompt_ids: IntArray  # for repetition penalty; the user's prompt only
    output_ids: IntArray  # tokens already produced, counted by the penalties and by positions


@dataclass(frozen=True, slots=True)
class TableWrite:
    """Slots of `count` consecutive positions of a row: `table[row, start:start + count] = slots`."""

    row: int
    start: int
    slots: IntArray


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One forward pass. Arrays are int32; B rows take part, T new tokens are computed, S rows are sampled.

    `input_ids[i] < 0` is a placeholder under overlap: the id sampled for row `-input_ids[i]` by the previous step.
    Token j of sequence b has position `prefix_lens[b] + j`; the forward pass writes its key/value into its entry of
    `out_slots`. Before it runs the engine applies `table_writes` (slots of cached prefixes, replaced slots) and then
    writes `out_slots` into the table at those same positions, so a decode step carries no table writes at all.
    """

    step_id: int
    mode: ForwardMode
    rows: IntArray  # [B] row of each sequence
    extend_lens: IntArray  # [B] new tokens of each sequence, 1 in decode unless some are given
    prefix_lens: IntArray  # [B] tokens whose key/value is already in the cache
    input_ids: IntArray  # [T] flat, sequence after sequence
    out_slots: IntArray  # [T]
    sampled: npt.NDArray[np.bool_]  # [B] false for a prefill chunk that is not the last
    row_starts: tuple[RowStart, ...] = ()
    released_rows: tuple[int, ...] = ()
    table_writes: tuple[TableWrite, ...] = ()
    prompt_logprobs: tuple[tuple[int, int], ...] = ()  # (index into rows, first prompt position wanted)
    given: tuple[tuple[int, int], ...] = ()  # (index into rows, its last input ids that are output nobody sampled)

    def given_ids(self) -> Iterator[tuple[int, list[int]]]:
        """Row and ids of `given`: they count as output before the row is sampled."""
        ends = np.cumsum(self.extend_lens)
        for index, count in self.given:
            end = int(ends[index])
            yield int(self.rows[index]), self.input_ids[end - count : end].tolist()


@dataclass(frozen=True, slots=True)
class RowLogprobs:
    """Log-probabilities of one sampled token; natural logarithm."""

    chosen: float
    top_ids: tuple[int, ...] = ()
    top: tuple[float, ...] = ()
    ids: tuple[float, ...] = ()  # values of SamplingSpec.logprob_ids, in their order


@dataclass(frozen=True, slots=True)
class StepResult:
    """Outcome of one step. Sampled rows appear in the order of `plan.rows[plan.sampled]`."""

    step_id: int
    token_ids: IntArray  # [S]
    invalid: tuple[int, ...] = ()  # rows whose logits were not finite: the request ends with an error
    logprobs: dict[int, RowLogprobs] = field(default_factory=dict)  # by row, only where asked
    prompt_logprobs: dict[int, tuple[RowLogprobs, ...]] = field(default_factory=dict)  # by row, positions of this chunk
    device_ns: int = 0
    failed: dict[int, str] = field(default_factory=dict)  # by row: a logit processor failed, what to say of it
