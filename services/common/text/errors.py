"""What can be wrong with a tokenizer on disk."""

from __future__ import annotations


class TokenizerUnavailable(Exception):
    """The tokenizer cannot be loaded; the message says which file and why. Fatal at start."""


class UnsupportedTokenizer(TokenizerUnavailable):
    """The files are readable, but of a kind that cannot be turned into bytes token by token."""
