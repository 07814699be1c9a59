"""A vocabulary in which every byte is a token: texts and ids can be read off each other in tests."""

from __future__ import annotations

from services.common.text.token_bytes import TokenBytes

EOS = 256
SPECIAL = {
    "<eos>": EOS,
    "<think>": 257,
    "</think>": 258,
    "<tool_call>": 259,
    "</tool_call>": 260,
    "[TOOL_CALLS]": 261,
    "<|python_tag|>": 262,
}
VOCAB = 300
DIGEST = "byte-tokens"


def ids(text: str) -> list[int]:
    """Token ids of a text; special tokens written out become one id."""
    for name, token in SPECIAL.items():
        if name in text:
            head, _, tail = text.partition(name)
            return [*ids(head), token, *ids(tail)]
    return list(text.encode())


def text(token_ids: list[int], *, skip_special: bool = True) -> str:
    """Text of token ids."""
    names = {token: name.encode() for name, token in SPECIAL.items()}
    parts = [bytes([t]) if t < 256 else b"" if skip_special else names.get(t, b"") for t in token_ids]
    return b"".join(parts).decode("utf-8", "replace")


def token_bytes() -> TokenBytes:
    """The table that the detokenizer works with."""
    names = {token: name.encode() for name, token in SPECIAL.items()}
    pieces = [bytes([t]) if t < 256 else names.get(t, b"") for t in range(VOCAB)]
    return TokenBytes(pieces, special_ids=frozenset(SPECIAL.values()), added_ids=frozenset(SPECIAL.values()))
