"""The decoder section of a tokenizer.json as a function of one token: its bytes inside a text and at its start."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from services.common.text.byte_level import byte_level_bytes
from services.common.text.errors import UnsupportedTokenizer

Rule = Callable[[str | bytes, bool], str | bytes]
"""(token so far, stands at the start of the text) -> token; bytes once it has left the world of characters."""

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")


def decoder_rules(decoder: Mapping[str, Any] | None) -> list[Rule]:
    """Steps to apply to each token in order. Raises UnsupportedTokenizer for a decoder that needs later tokens."""
    if decoder is None:
        return [_joined_by_spaces]
    rules: list[Rule] = []
    fused = False
    for step in _flat(decoder):
        fused = fused or step["type"] == "Fuse"
        rule = _rule(step, fused)
        if rule is not None:
            rules.append(rule)
    return rules


def apply_rules(rules: list[Rule], token: str, at_start: bool) -> bytes:
    """Bytes of one token."""
    value: str | bytes = token
    for rule in rules:
        value = rule(value, at_start)
    return value.encode() if isinstance(value, str) else value


def start_matters(decoder: Mapping[str, Any] | None) -> bool:
    """Whether any token can mean something else at the start of a text."""
    return decoder is None or any(step["type"] in ("Metaspace", "Strip") for step in _flat(decoder))


def _flat(decoder: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if decoder["type"] != "Sequence":
        return [decoder]
    return [step for inner in decoder["decoders"] for step in _flat(inner)]


def _rule(step: Mapping[str, Any], fused: bool) -> Rule | None:
    match step["type"]:
        case "Fuse":
            return None
        case "ByteLevel":
            return lambda token, _: byte_level_bytes(token) if isinstance(token, str) else token
        case "ByteFallback":
            return _byte_fallback
        case "Metaspace":
            return _metaspace(step)
        case "Replace" if "String" in step["pattern"]:
            return _replace(step["pattern"]["String"], step["content"])
        case "Strip" if step.get("stop", 0) == 0:
            return _strip(step["content"], step["start"], everywhere=not fused)
    raise UnsupportedTokenizer(f"decoder {step['type']!r} of this tokenizer.json cannot be applied token by token")


def _joined_by_spaces(token: str | bytes, at_start: bool) -> str | bytes:
    return token if at_start or isinstance(token, bytes) else " " + token


def _byte_fallback(token: str | bytes, _: bool) -> str | bytes:
    found = _BYTE_TOKEN.match(token) if isinstance(token, str) else None
    return bytes([int(found[1], 16)]) if found else token


def _metaspace(step: Mapping[str, Any]) -> Rule:
    mark = step.get("replacement", "▁")
    scheme = step.get("prepend_scheme", "always" if step.get("add_prefix_space", True) else "never")

    def rule(token: str | bytes, at_start: bool) -> str | bytes:
        if isinstance(token, bytes):
            return token
        return token.replace(mark, "" if at_start and scheme != "never" else " ")

    return rule


def _replace(pattern: str, content: str) -> Rule:
    return lambda token, _: token.replace(pattern, content) if isinstance(token, str) else token


def _strip(content: str, count: int, *, everywhere: bool) -> Rule:
    mark = content.encode()

    def rule(token: str | bytes, at_start: bool) -> str | bytes:
        if not (at_start or everywhere):
            return token
        data = token.encode() if isinstance(token, str) else token
        for _ in range(count):
            data = data.removeprefix(mark)
        return data

    return rule
