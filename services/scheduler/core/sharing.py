"""Prefix sharing within a round: of several prompts with a common beginning one computes it, the others wait for it."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from services.scheduler.core.choice import Choice
from services.scheduler.core.plan import IntArray

SHARE_AT_LEAST = 32  # tokens that must be saved to make a choice wait


class RoundPrefixes:
    """Prompts that are computed in this round, newly admitted or by their next chunk, found by their first tokens."""

    def __init__(self) -> None:
        self._prompts: dict[tuple[Hashable, bytes], list[IntArray]] = {}

    def add(self, choice: Choice) -> None:
        if choice.fill.size >= SHARE_AT_LEAST:
            self._prompts.setdefault(_key(choice), []).append(choice.fill)

    def saves(self, choice: Choice, cached: int) -> bool:
        """Would the choice, of which `cached` tokens are in the cache, find enough more after this round?"""
        end = min(cached + SHARE_AT_LEAST, choice.match_limit)
        if end < cached + SHARE_AT_LEAST:
            return False
        wanted = choice.fill[:end]
        return any(prompt.size >= end and np.array_equal(prompt[:end], wanted) for prompt in self._prompts.get(_key(choice), ()))


def _key(choice: Choice) -> tuple[Hashable, bytes]:
    return choice.request.namespace, choice.fill[:SHARE_AT_LEAST].tobytes()
