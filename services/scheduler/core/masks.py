"""Vocabulary masks of the rows that follow a grammar."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from services.scheduler.core.jump_forward import forced_ids
from services.scheduler.core.state import State
from services.scheduler.core.step import Step
from services.scheduler.core.token_mask import allow

_ALL_ALLOWED = np.int32(-1)


def fill(state: State, step: Step) -> npt.NDArray[np.int32] | None:
    """[S, ceil(vocab / 32)] allowed ids of the sampled rows, None if no row is constrained.

    Every earlier token of the constrained rows must have been processed.
    """
    if not step.needs_masks:
        return None
    batch, rows = state.batch, step.sampled_rows
    masks = np.full((rows.size, -(-state.info.vocab_size // 32)), _ALL_ALLOWED, np.int32)
    alive = batch.generation[rows] == step.generations
    for index in np.flatnonzero(alive & batch.constrained[rows]).tolist():
        choice = batch.choice(int(rows[index]))
        if following := forced_ids(choice):
            masks[index] = 0
            allow(masks[index], (following[0],))
        else:
            assert choice.grammar is not None
            choice.grammar.fill_mask(masks[index])
    return masks
