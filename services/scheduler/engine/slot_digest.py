"""One number for all a slot holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch
import xxhash


def slot_digests(slots: Iterable[Sequence[torch.Tensor]]) -> npt.NDArray[np.uint64]:
    """One digest per slot, over the tensors that hold its keys and values, bit by bit."""
    return np.array([_digest(parts) for parts in slots], np.uint64)


def _digest(parts: Sequence[torch.Tensor]) -> int:
    hasher = xxhash.xxh3_64()
    for part in parts:
        hasher.update(part.contiguous().cpu().view(torch.uint8).numpy().data)
    return hasher.intdigest()
