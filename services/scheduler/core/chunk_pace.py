"""What a prompt token and a decode step cost on this device, learned from finished steps."""

from __future__ import annotations

_BELIEVED = 0.5  # of what a step deviates
_MOST = 4.0  # times the expected: one step is believed no further, for something else may have held it up


class ChunkPace:
    """0.0 ms where nothing is known yet.

    A step that does both is split as was seen of either alone. What it takes longer or shorter than expected changes
    both costs alike: a device that others use, or that runs hot, is slower at everything.
    """

    def __init__(self) -> None:
        self.token_ms = 0.0
        self.decode_ms = 0.0

    def observe(self, tokens: int, rows: int, elapsed_ms: float, target_ms: float) -> None:
        """A step computed `tokens` of prompts and one token of each of `rows` choices."""
        if not tokens:
            self.decode_ms = _moved(self.decode_ms, elapsed_ms)
        elif not rows or not self.token_ms:
            self._observe_prefill(tokens, elapsed_ms, target_ms)
        elif not self.decode_ms:
            self.decode_ms = max(elapsed_ms - tokens * self.token_ms, 0.0)
        else:
            expected = self.decode_ms + tokens * self.token_ms
            change = _moved(expected, elapsed_ms) / expected
            self.token_ms *= change
            self.decode_ms *= change

    def _observe_prefill(self, tokens: int, elapsed_ms: float, target_ms: float) -> None:
        """A step that had much room left is no sign of a slow device: part of its time is there for any step."""
        found = elapsed_ms / tokens
        if not self.token_ms or found < self.token_ms or 2 * tokens * self.token_ms >= target_ms:
            self.token_ms = _moved(self.token_ms, found)


def _moved(known: float, found: float) -> float:
    return known + _BELIEVED * (min(max(found, known / _MOST), known * _MOST) - known) if known else found
