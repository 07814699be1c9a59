"""Share of its remaining token budget that a running choice is expected to use."""

from __future__ import annotations

from collections.abc import Sequence

RETRACTION_HEADROOM = 20  # tokens per running choice added to what was decoded, when the ratio is estimated anew


class NewTokenRatio:
    """Starts high, falls linearly with decode steps while the forecast holds, is estimated anew after a retraction."""

    def __init__(self, initial: float, conservativeness: float, floor_factor: float, decay_steps: int) -> None:
        self.start = min(initial * conservativeness, 1.0)
        self.floor = self.start * floor_factor
        self._step = (self.start - self.floor) / decay_steps
        self.value = self.start

    def decode_step(self) -> None:
        self.value = max(self.value - self._step, self.floor)

    def reset(self) -> None:
        self.value = self.start

    def after_retraction(self, decoded: Sequence[int], max_new: Sequence[int]) -> None:
        """`decoded` and `max_new` are those of the choices that go on running."""
        estimate = (sum(decoded) + RETRACTION_HEADROOM * len(decoded)) / (sum(max_new) + 1)
        self.value = min(1.0, estimate)
