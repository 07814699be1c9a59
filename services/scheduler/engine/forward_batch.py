"""The arrays of one forward pass, derived from a plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from services.scheduler.core.plan import IntArray, StepPlan


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """B sequences with T new tokens; L positions of the flat batch want logits. All arrays are int32."""

    input_ids: IntArray  # [T]
    positions: IntArray  # [T] position of each token in its sequence
    out_slots: IntArray  # [T] cache slot each token's key and value go to
    rows: IntArray  # [B] row of the request-to-token table
    extend_lens: IntArray  # [B] new tokens
    seq_lens: IntArray  # [B] tokens with key and value after this pass
    logits_index: IntArray  # [L] indices into the T tokens, ascending

    @property
    def starts(self) -> IntArray:
        """[B] index of each sequence's first token in the flat batch."""
        starts: IntArray = np.cumsum(self.extend_lens, dtype=np.int32) - self.extend_lens
        return starts


def token_positions(prefix_lens: IntArray, extend_lens: IntArray) -> IntArray:
    """Positions of all new tokens, sequence after sequence: `prefix, prefix + 1, …`."""
    if extend_lens.size == int(extend_lens.sum()):
        return np.asarray(prefix_lens, np.int32)
    starts = np.cumsum(extend_lens) - extend_lens
    offsets = np.repeat(prefix_lens - starts, extend_lens)
    positions: IntArray = (np.arange(offsets.size) + offsets).astype(np.int32)
    return positions


def from_plan(plan: StepPlan, input_ids: IntArray, logits_index: IntArray) -> ForwardBatch:
    """The whole step as one pass. `input_ids` has placeholders already replaced."""
    return ForwardBatch(
        input_ids=input_ids,
        positions=token_positions(plan.prefix_lens, plan.extend_lens),
        out_slots=plan.out_slots,
        rows=plan.rows,
        extend_lens=plan.extend_lens,
        seq_lens=(plan.prefix_lens + plan.extend_lens).astype(np.int32, copy=False),
        logits_index=logits_index,
    )


def split(batch: ForwardBatch, most_logits: int) -> Iterator[ForwardBatch]:
    """Cut a pass that wants very many logits into passes of at most `most_logits` each, in token order.

    Later pieces see the keys and values earlier ones wrote, so the logits are those of one pass.
    """
    if batch.logits_index.size <= most_logits:
        yield batch
        return
    for sequence, start in enumerate(batch.starts.tolist()):
        length = int(batch.extend_lens[sequence])
        prefix = int(batch.seq_lens[sequence]) - length
        for offset in range(0, length, most_logits):
            count = min(most_logits, length - offset)
            first, last = start + offset, start + offset + count
            inside = (batch.logits_index >= first) & (batch.logits_index < last)
            yield ForwardBatch(
                input_ids=batch.input_ids[first:last],
                positions=batch.positions[first:last],
                out_slots=batch.out_slots[first:last],
                rows=batch.rows[sequence : sequence + 1],
                extend_lens=np.array([count], np.int32),
                seq_lens=np.array([prefix + offset + count], np.int32),
                logits_index=(batch.logits_index[inside] - first).astype(np.int32),
            )
