"""What has to be reached beside the peers on a CPU: one line per row of the table."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Target:
    """`metric` of ours over the peer's, under `load`. `at_most` says which side of the bounds is good."""

    load: str
    metric: str
    ours: str
    peer: str
    must: float
    goal: float
    at_most: bool

    def judge(self, ratio: float) -> str:
        """goal, must or missed."""
        for word, bound in (("goal", self.goal), ("must", self.must)):
            if ratio <= bound if self.at_most else ratio >= bound:
                return word
        return "missed"


INT8, BF16, VLLM, LLAMA = "headrace int8", "headrace bf16", "vLLM", "llama.cpp"
RADIX, NO_RADIX = "headrace radix", "headrace no radix"

TARGETS = (
    Target("1 user", "TPOT", INT8, VLLM, 0.45, 0.30, True),
    Target("1 user", "TPOT", INT8, LLAMA, 1.1, 0.75, True),
    Target("1 user", "TPOT", BF16, VLLM, 0.60, 0.38, True),
    Target("1 user", "TTFT", INT8, VLLM, 0.75, 0.55, True),
    Target("1 user", "TTFT", BF16, VLLM, 1.05, 0.95, True),
    Target("8 users", "tok/s", INT8, VLLM, 1.6, 2.2, False),
    Target("8 users", "tok/s", BF16, VLLM, 1.3, 1.4, False),
    Target("32 users", "tok/s", INT8, VLLM, 1.4, 1.75, False),
    Target("32 users", "tok/s", BF16, VLLM, 1.1, 1.2, False),
    Target("32 users", "p99 ITL", INT8, VLLM, 0.25, 0.15, True),
    Target("32 users", "p99 ITL", BF16, VLLM, 0.25, 0.22, True),
    Target("shared prefix", "tok/s", INT8, VLLM, 1.4, 2.0, False),
    Target("shared prefix", "tok/s", BF16, VLLM, 1.4, 2.0, False),
    Target("long prefix", "duration", RADIX, NO_RADIX, 1 / 2.7, 1 / 2.7, True),
    Target("long prefix", "TTFT", RADIX, NO_RADIX, 1 / 5.3, 1 / 5.3, True),
    Target("second start", "seconds", INT8, VLLM, 0.5, 0.5, True),
    Target("second start", "seconds", BF16, VLLM, 0.5, 0.5, True),
    Target("memory", "PSS - KV", INT8, VLLM, 0.6, 0.6, True),
    Target("memory", "PSS - KV", BF16, VLLM, 0.6, 0.6, True),
)

Values = dict[tuple[str, str, str], list[float]]  # (load, metric, server) → one value per round


def table(values: Values, floors: dict[tuple[str, str], float]) -> str:
    """Ours, the peer, the floor, median ratio with its spread over rounds, and what it reaches."""
    sides = f"{'load':14} {'metric':9} {'ours':18} {'':>9} {'peer':18} {'':>9} {'floor':>9}"
    lines = [f"{sides}  {'ratio':>6} {'spread':>13}  {'must':>5} {'goal':>5}"]
    for target in TARGETS:
        ours = values.get((target.load, target.metric, target.ours), [])
        peer = values.get((target.load, target.metric, target.peer), [])
        if not ours or not peer:
            continue
        each = [a / b for a, b in zip(ours, peer, strict=False)]
        ratio = median(each)
        floor = floors.get((target.load, target.metric))
        lines.append(
            f"{target.load:14} {target.metric:9} {target.ours:18} {median(ours):>9.2f} {target.peer:18} {median(peer):>9.2f} "
            f"{'' if floor is None else format(floor, '.2f'):>9}  {ratio:>6.2f} {min(each):>6.2f}..{max(each):<5.2f}  "
            f"{target.must:>5.2f} {target.goal:>5.2f}  {target.judge(ratio)}"
        )
    return "\n".join(lines)
