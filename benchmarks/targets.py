"""What has to be reached beside the peers on a CPU: one line per figure of the comparison."""

from __future__ import annotations

from dataclasses import dataclass

INT8, BF16, VLLM, LLAMA = "headrace int8", "headrace bf16", "vLLM", "llama.cpp"
RADIX, NO_RADIX = "headrace radix", "headrace no radix"
ONE, EIGHT, MANY, SHARED, LONG = "1 user", "8 users", "32 users", "shared prefix", "long prefix"
START, MEMORY = "second start", "memory"


@dataclass(frozen=True, slots=True)
class Target:
    """`metric` of ours over the peer's, under `load`. `at_most` says which side of the bounds is good.

    Without `must` the line is there to be read, not judged. `goal` bounds the ratio, `goal_value` our own figure.
    """

    load: str
    metric: str
    ours: str
    peer: str
    must: float | None = None
    goal: float | None = None
    at_most: bool = True
    goal_value: float | None = None

    def judge(self, ratio: float, value: float) -> str:
        """goal, must or missed; empty for a line without bounds."""
        if self.must is None:
            return ""
        if self.goal is not None and self._within(ratio, self.goal):
            return "goal"
        if self.goal_value is not None and self._within(value, self.goal_value):
            return "goal"
        return "must" if self._within(ratio, self.must) else "missed"

    def _within(self, value: float, bound: float) -> bool:
        return value <= bound if self.at_most else value >= bound


def _rate(load: str, ours: str, must: float, goal: float) -> Target:
    return Target(load, "tok/s", ours, VLLM, must, goal, at_most=False)


TARGETS = (
    Target(ONE, "TPOT", INT8, VLLM, 0.45, 0.30),
    Target(ONE, "TPOT", INT8, LLAMA, 1.1, 0.75),
    Target(ONE, "TPOT", BF16, VLLM, 0.60, 0.38),
    Target(ONE, "TTFT", INT8, VLLM, 0.75, 0.55),
    Target(ONE, "TTFT", BF16, VLLM, 1.05, 0.95),
    _rate(EIGHT, INT8, 1.6, 2.2),
    _rate(EIGHT, BF16, 1.3, 1.4),
    Target(EIGHT, "TTFT", INT8, VLLM),
    Target(EIGHT, "TTFT", BF16, VLLM),
    _rate(MANY, INT8, 1.4, 1.75),
    _rate(MANY, BF16, 1.1, 1.2),
    Target(MANY, "p99 ITL", INT8, VLLM, 0.25, 0.15),
    Target(MANY, "p99 ITL", BF16, VLLM, 0.25, 0.22),
    Target(MANY, "TTFT", INT8, VLLM),
    Target(MANY, "TTFT", BF16, VLLM),
    _rate(SHARED, INT8, 1.4, 2.0),
    _rate(SHARED, BF16, 1.4, 2.0),
    Target(SHARED, "TTFT", INT8, VLLM),
    Target(SHARED, "TTFT", BF16, VLLM),
    Target(LONG, "duration", RADIX, NO_RADIX, 1 / 2.7, None),
    Target(LONG, "TTFT", RADIX, NO_RADIX, 1 / 5.3, None),
    Target(START, "seconds", INT8, VLLM, 0.5, goal_value=8.0),
    Target(START, "seconds", BF16, VLLM, 0.5, goal_value=8.0),
    Target(MEMORY, "PSS - KV", INT8, VLLM, 0.6, None),
    Target(MEMORY, "PSS - KV", BF16, VLLM, 0.6, None),
)

UNITS = {"TPOT": "ms", "TTFT": "ms", "p99 ITL": "ms", "tok/s": "", "duration": "s", "seconds": "s", "PSS - KV": "MiB"}
