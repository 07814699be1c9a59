"""The byte alphabet of byte-level BPE: every byte has one printable character that stands for it in a vocabulary."""

from __future__ import annotations

_PRINTABLE = (*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100))


def _alphabet() -> dict[str, int]:
    table = {chr(byte): byte for byte in _PRINTABLE}
    others = [byte for byte in range(256) if byte not in _PRINTABLE]
    table.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return table


BYTE_OF_CHARACTER = _alphabet()
"""Character of a byte-level vocabulary -> the byte it stands for."""


_NO_BYTE = "\u0100"
_TO_LATIN_1 = dict.fromkeys(range(256), _NO_BYTE) | {ord(c): chr(byte) for c, byte in BYTE_OF_CHARACTER.items()}


def byte_level_bytes(token: str) -> bytes:
    """Bytes of one vocabulary entry; an entry with characters outside the alphabet stands for its own UTF-8."""
    try:
        return token.translate(_TO_LATIN_1).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode()
