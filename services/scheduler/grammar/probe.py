"""Follows a grammar along a few outputs before anybody waits for it: what costs too much per token is refused.

The masks of a running request are built between the steps of all requests, so a grammar that is slow to follow must not
get that far. What makes a grammar slow is mostly that it can read one text in many ways, and shows where the same comes
again and again: of the outputs some are random, the others long runs of one token. A grammar can hide its cost from them;
`RequestGrammar` watches for that.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

WALKS = 2
RUNS = 4
STEPS = 24
RUN_STEPS = 96
MOST_CPU_S = 0.6
"""Processor time for one walk: 25 ms a token, some hundred times what usual schemas cost."""


class Walker(Protocol):
    """The part of a matcher that a walk needs."""

    def accept(self, token_id: int) -> bool:
        """Advance by one id."""

    def fill_mask(self, words: npt.NDArray[np.int32]) -> None:
        """Write the ids allowed next."""

    @property
    def finished(self) -> bool:
        """Nothing but an end may follow."""


def too_costly(make: Callable[[], Walker], words: int, *, clock: Callable[[], float] = time.thread_time) -> bool:
    """Whether following the grammar takes more processor time than a token is worth. `words` as in `fill_mask`."""
    walks = any(_walk(make(), words, random.Random(seed), clock) for seed in range(WALKS))
    return walks or any(_walk(make(), words, random.Random(seed), clock, RUN_STEPS, repeats=True) for seed in range(RUNS))


def _walk(walker: Walker, words: int, rng: random.Random, clock: Callable[[], float], steps: int = STEPS, *, repeats: bool = False) -> bool:
    mask = np.zeros(words, np.int32)
    token = -1
    began = clock()
    for _ in range(steps):
        if walker.finished:
            return False
        walker.fill_mask(mask)
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
        if not (repeats and token in allowed):
            token = int(rng.choice(allowed)) if allowed.size else -1
        if not allowed.size or not walker.accept(token):
            return False
        if clock() - began > MOST_CPU_S:
            return True
    return False
