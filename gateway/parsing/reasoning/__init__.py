"""Reasoning parsers by family name."""

from __future__ import annotations

from gateway.parsing.reasoning.deepseek_r1 import DEEPSEEK_R1
from gateway.parsing.reasoning.qwen3 import QWEN3
from gateway.parsing.reasoning.splitter import ReasoningFamily, ReasoningSplitter

FAMILIES: dict[str, ReasoningFamily] = {
    "deepseek-r1": DEEPSEEK_R1,
    "deepseek_r1": DEEPSEEK_R1,
    "qwen3": QWEN3,
    "qwen3-thinking": DEEPSEEK_R1,
    "glm45": QWEN3,
}

__all__ = ["FAMILIES", "ReasoningFamily", "ReasoningSplitter", "reasoning_family"]


def reasoning_family(name: str) -> ReasoningFamily | None:
    """The family of a `--reasoning-parser` name; None for an empty name. Raises KeyError for an unknown one."""
    return FAMILIES[name] if name else None
