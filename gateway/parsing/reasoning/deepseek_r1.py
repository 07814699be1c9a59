"""DeepSeek-R1 and its like: the prompt ends inside the thought, so the answer begins there; `<think>` may still come."""

from __future__ import annotations

from gateway.parsing.reasoning.splitter import ReasoningFamily

DEEPSEEK_R1 = ReasoningFamily("deepseek-r1", begin="<think>", end="</think>", starts_inside=True)
