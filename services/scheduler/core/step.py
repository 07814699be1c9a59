"""One planned forward pass and what must be remembered until its result is in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from services.scheduler.core.plan import IntArray, StepPlan


@dataclass(frozen=True, slots=True)
class PrefillPart:
    """Tokens `start`..`end` of a row's prompt (and output, after a retraction), computed in one step."""

    row: int
    start: int
    end: int
    is_last: bool
    samples: bool  # a token is wanted after it
    slots: IntArray
    logprobs_from: int | None = None  # first prompt position whose logprob is still missing

    @property
    def count(self) -> int:
        return self.end - self.start


@dataclass(slots=True)
class Step:
    """`generations` tell, when the result is in, which rows still belong to the choices they were sampled for."""

    plan: StepPlan
    parts: tuple[PrefillPart, ...]
    part_generations: npt.NDArray[np.int64]
    sampled_rows: IntArray
    generations: npt.NDArray[np.int64]
    decode_rows: int
    needs_masks: bool
    launched_ns: int = 0

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all parts."""
        return sum(part.count for part in self.parts)
