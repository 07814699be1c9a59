"""Tool call parsers by family name."""

from __future__ import annotations

from gateway.parsing.tools.deepseek import DEEPSEEK
from gateway.parsing.tools.hermes import HERMES
from gateway.parsing.tools.interface import ToolFamily, ToolParser
from gateway.parsing.tools.llama3 import LLAMA3
from gateway.parsing.tools.mistral import MISTRAL
from gateway.parsing.tools.pythonic import PYTHONIC

FAMILIES: dict[str, ToolFamily] = {
    "hermes": HERMES,
    "qwen": HERMES,
    "qwen25": HERMES,
    "llama3": LLAMA3,
    "llama3_json": LLAMA3,
    "mistral": MISTRAL,
    "deepseek": DEEPSEEK,
    "deepseekv3": DEEPSEEK,
    "deepseek_v3": DEEPSEEK,
    "deepseekv31": DEEPSEEK,
    "pythonic": PYTHONIC,
}

__all__ = ["FAMILIES", "ToolFamily", "ToolParser", "tool_family"]


def tool_family(name: str) -> ToolFamily:
    """The family of a `--tool-call-parser` name. Raises KeyError."""
    return FAMILIES[name]
