"""Bytes to text as they arrive: never half a character, and no byte is looked at twice.

Bytes that can no longer become a character turn into one U+FFFD per maximal part of a character (Unicode, section
3.9), the same in every grouping. At most three bytes ever wait.
"""

from __future__ import annotations

import codecs


def decode_ready(data: bytes | bytearray) -> tuple[str, int]:
    """Text of all bytes whose fate is known, and how many those are; the rest is the start of a character."""
    return codecs.utf_8_decode(data, "replace", False)


def decode_all(data: bytes | bytearray) -> str:
    """Text of all bytes; an unfinished character at the end becomes U+FFFD."""
    return codecs.utf_8_decode(data, "replace", True)[0]
