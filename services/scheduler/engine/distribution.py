"""From one row of logits to one token or its log-probabilities. Nothing here sees more than one row."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from services.scheduler.core.plan import RowLogprobs, SamplingSpec
from services.scheduler.logit_processors.interface import FloatRow

IdArray = npt.NDArray[np.int64]
_BLOCK = 256
_LEAST = -9999.0  # stands for log(0), which JSON cannot carry


class RowWorkspace:
    """Buffers for rows of `vocab_size` logits, reused from row to row."""

    def __init__(self, vocab_size: int) -> None:
        blocks = -(-vocab_size // _BLOCK)
        self._vocab_size = vocab_size
        self._padded = np.zeros(blocks * _BLOCK, np.float32)

    def weights(self, logits: FloatRow, scale: float) -> FloatRow:
        """exp((logits - max) * scale), [vocab], valid until the next call. Finite logits (or -inf) are needed."""
        out = self._padded[: self._vocab_size]
        np.subtract(logits, logits.max(), out=out)
        if scale != 1.0:
            np.multiply(out, np.float32(scale), out=out)
        return np.exp(out, out=out)

    def draw(self, logits: FloatRow, spec: SamplingSpec, scale: float, uniform: float) -> int:
        """The token whose share of the (filtered) cumulative distribution contains `uniform`, ids ascending."""
        weights = self.weights(logits, scale)
        if spec.top_p >= 1.0 and spec.top_k <= 0 and spec.min_p <= 0.0:
            return self._draw_unfiltered(uniform)
        kept = _filtered(weights, spec, float(self._block_sums().sum()))
        return int(kept[_locate(weights[kept].cumsum(dtype=np.float64), uniform)])

    def log_total(self, logits: FloatRow, scale: float) -> float:
        """Logarithm of the sum of exp(logits * scale)."""
        self.weights(logits, scale)
        return float(logits.max()) * scale + math.log(float(self._block_sums().sum()))

    def _block_sums(self) -> npt.NDArray[np.float64]:
        sums: npt.NDArray[np.float64] = self._padded.reshape(-1, _BLOCK).sum(axis=1).astype(np.float64)
        return sums

    def _draw_unfiltered(self, uniform: float) -> int:
        """Find the block first, then the token in it."""
        ends = self._block_sums().cumsum()
        target = uniform * ends[-1]
        block = min(int(ends.searchsorted(target, side="right")), ends.size - 1)
        inside = self._padded[block * _BLOCK : (block + 1) * _BLOCK].cumsum(dtype=np.float64)
        before = float(ends[block - 1]) if block else 0.0
        return block * _BLOCK + _first_above(inside, target - before)

    def logprobs(self, logits: FloatRow, spec: SamplingSpec, scale: float, chosen: int) -> RowLogprobs:
        """Log-probabilities of `chosen`, the most likely ids and the ids asked for, of softmax(logits * scale)."""
        total = self.log_total(logits, scale)

        def of(ids: Sequence[int] | IdArray) -> tuple[float, ...]:
            values = logits[np.asarray(ids, np.int64)].astype(np.float64) * scale - total
            return tuple(np.maximum(values, _LEAST).tolist())

        top = largest(logits, spec.top_logprobs) if spec.top_logprobs > 0 else np.empty(0, np.int64)
        return RowLogprobs(
            chosen=of([chosen])[0],
            top_ids=tuple(top.tolist()),
            top=of(top),
            ids=of(spec.logprob_ids) if spec.logprob_ids else (),
        )


def largest(values: FloatRow, count: int) -> IdArray:
    """Ids of the `count` largest values, largest first, the lower id first among equals. Exact, without a full sort."""
    candidates = _at_least_kth(values, count)
    order = np.lexsort((candidates, -values[candidates]))
    best: IdArray = candidates[order[:count]]
    return best


def _at_least_kth(values: FloatRow, count: int) -> IdArray:
    """A superset of the `count` largest: all values not below the count-th largest block maximum."""
    full = values.size // _BLOCK * _BLOCK
    maxima = values[:full].reshape(-1, _BLOCK).max(axis=1) if full else values[:0]
    if maxima.size < count:
        return np.arange(values.size)
    bound = np.partition(maxima, maxima.size - count)[maxima.size - count]
    return np.flatnonzero(values >= bound)


def _filtered(weights: FloatRow, spec: SamplingSpec, total: float) -> IdArray:
    """Ids that survive top-k, top-p and min-p, ascending. Each filter looks at the whole distribution.

    top-p keeps the most likely ids until their share reaches `top_p`; `weights` has a maximum of 1.
    """
    floor = np.float32(max(spec.min_p, float(np.finfo(np.float32).tiny)))
    if spec.top_k > 0:
        kept = largest(weights, spec.top_k)
        if spec.top_p < 1.0:
            kept = kept[: _nucleus_size(weights[kept], spec.top_p * total)]
        kept = kept[weights[kept] >= floor]
        kept.sort()
        return kept
    if spec.top_p < 1.0:
        return _nucleus(weights, spec.top_p * total, floor)
    return np.flatnonzero(weights >= floor)


def _nucleus(weights: FloatRow, needed: float, floor: np.float32) -> IdArray:
    """Ids of the smallest set of largest weights that reaches `needed`, without those below `floor`, ascending.

    Weights are sorted without their ids, and only as many as it takes; ids follow by comparing with the smallest.
    """
    bound = np.float32(2.0**-6)
    while True:
        bound = np.float32(max(float(bound), float(floor)))
        candidates = np.flatnonzero(weights >= bound)
        chosen = weights[candidates]
        if bound <= floor or float(chosen.sum(dtype=np.float64)) > needed:
            break
        bound = np.float32(bound / 32)
    falling = np.sort(chosen)[::-1]
    size = _nucleus_size(falling, needed)
    least = falling[size - 1]
    keep = chosen > least
    ties = np.flatnonzero(chosen == least)
    keep[ties[: size - int(keep.sum())]] = True
    kept: IdArray = candidates[keep]
    return kept


def _nucleus_size(falling: FloatRow, needed: float) -> int:
    """How many of the weights, largest first, it takes to reach `needed`; at least one."""
    return max(1, min(falling.size, int(falling.cumsum(dtype=np.float64).searchsorted(needed, side="left")) + 1))


def _locate(ends: npt.NDArray[np.float64], uniform: float) -> int:
    return _first_above(ends, uniform * float(ends[-1]))


def _first_above(ends: npt.NDArray[np.float64], target: float) -> int:
    """Index of the first cumulative weight above `target`; rounding at the end falls to the last id with weight."""
    at = int(ends.searchsorted(target, side="right"))
    return at if at < ends.size else int(ends.searchsorted(ends[-1], side="left"))
