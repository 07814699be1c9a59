"""Qwen3 and its like: a thought, if there is one, stands between `<think>` and `</think>` at the beginning."""

from __future__ import annotations

from gateway.parsing.reasoning.splitter import ReasoningFamily

QWEN3 = ReasoningFamily("qwen3", begin="<think>", end="</think>", starts_inside=False)
