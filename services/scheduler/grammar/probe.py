"""Follows a grammar along a few random outputs before anybody waits for it: what costs too much per token is refused.

The masks of a running request are built between the steps of all requests, so a grammar that is slow to follow must not
get that far. A grammar can hide its cost from a random walk; `RequestGrammar` watches for that.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

WALKS = 2
STEPS = 24
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
    return any(_walk(make(), words, random.Random(seed), clock) for seed in range(WALKS))


def _walk(walker: Walker, words: int, rng: random.Random, clock: Callable[[], float]) -> bool:
    mask = np.zeros(words, np.int32)
    began = clock()
    for _ in range(STEPS):
        if walker.finished:
            return False
        walker.fill_mask(mask)
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
        if not allowed.size or not walker.accept(int(rng.choice(allowed))):
            return False
        if clock() - began > MOST_CPU_S:
            return True
    return False
