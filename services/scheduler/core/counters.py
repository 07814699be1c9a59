"""Plain numbers for metrics, counted since start."""

from __future__ import annotations

from dataclasses import dataclass, field

_SMOOTHING = 0.1


@dataclass(slots=True)
class Counters:
    """Totals; the rates at the end are exponential averages and 0.0 until first known."""

    submitted: int = 0
    finished: dict[str, int] = field(default_factory=dict)  # by lower-case finish reason
    rejected: dict[str, int] = field(default_factory=dict)  # by error code, before anything ran
    prompt_tokens: int = 0  # of started choices, once each
    cached_tokens: int = 0
    computed_prompt_tokens: int = 0  # in prefill steps, repeated work after retractions included
    generated_tokens: int = 0
    jumped_tokens: int = 0  # of these, written because the grammar left no choice
    discarded_tokens: int = 0  # computed under overlap for choices that had ended
    prefill_steps: int = 0
    decode_steps: int = 0
    mixed_steps: int = 0
    retractions: int = 0
    retracted_input_tokens: int = 0  # computed tokens given up, of prompts
    retracted_output_tokens: int = 0  # and of outputs
    recomputed_tokens: int = 0  # computed once more when those choices came back
    preemptions: int = 0
    out_of_memory: int = 0
    memory_bound_raises: int = 0  # growths of bounds that an out-of-memory had lowered
    invalid_outputs: int = 0
    kv_corrupt_slots: int = 0  # found by the canary
    turns: int = 0
    prefill_tokens_per_s: float = 0.0
    generation_tokens_per_s: float = 0.0
    decode_step_ms: float = 0.0

    def count_final(self, reason: str) -> None:
        self.finished[reason] = self.finished.get(reason, 0) + 1

    def count_rejected(self, code: str) -> None:
        self.rejected[code] = self.rejected.get(code, 0) + 1


def smoothed(average: float, value: float) -> float:
    """Exponential average that begins with the first value."""
    return value if average == 0.0 else average + _SMOOTHING * (value - average)
