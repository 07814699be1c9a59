"""How many prompt tokens a step computes in a given time."""

from __future__ import annotations

_SMOOTHING = 0.5


class ChunkPace:
    """Learns from finished steps. Decode tokens in the same step count as part of what its prompt tokens cost."""

    def __init__(self) -> None:
        self.tokens_per_ms = 0.0  # 0.0 until known

    def observe(self, tokens: int, elapsed_ms: float, target_ms: float) -> None:
        """A step with `tokens` prompt tokens took `elapsed_ms`. One that had much room left is no sign of a slow device."""
        found = tokens / elapsed_ms
        if not self.tokens_per_ms:
            self.tokens_per_ms = found
        elif found > self.tokens_per_ms or 2 * tokens >= self.tokens_per_ms * target_ms:
            self.tokens_per_ms += _SMOOTHING * (found - self.tokens_per_ms)
