"""Masks over the vocabulary, as engines and grammars exchange them: bit i % 32 of word i // 32 allows id i."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt


def allow(words: npt.NDArray[np.int32], ids: Iterable[int]) -> None:
    """Allow these ids besides those that `words` [ceil(vocab / 32)] allows."""
    bits = words.view(np.uint32)
    for token_id in ids:
        bits[token_id // 32] |= np.uint32(1 << token_id % 32)
