"""Header blocks without their cost: ours never differ much, and the peers' are nearly always the same few bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hpack import Decoder, Encoder
from hpack.hpack import encode_integer

_INDEXED, _LONG_INDEX = 0x80, 0xFF
_MOST_KEPT = 64


class LiteralEncoder(Encoder):
    """Every header is a literal outside both tables (RFC 7541, 6.2.2 and 6.2.3): nothing to search and nothing to remember.

    The spelling of a header that may be indexed, so one that comes again, is kept.
    """

    def __init__(self) -> None:
        super().__init__()
        self._spelled: dict[tuple[Any, Any], bytes] = {}

    def encode(self, headers: Iterable[Any], huffman: bool = True) -> bytes:
        """One block. `headers`: pairs of text or bytes."""
        spelled, parts = self._spelled, []
        if self.header_table.resized:
            parts.append(self._encode_table_size_change())
            self.header_table.resized = False
        for header in headers:
            if getattr(header, "indexable", True):
                found = spelled.get(header)
                if found is None:
                    found = _literal(b"\0", header)
                    if len(spelled) < _MOST_KEPT:
                        spelled[header[0], header[1]] = found
                parts.append(found)
            else:
                parts.append(_literal(b"\x10", header))
        return b"".join(parts)


def _literal(kind: bytes, header: Any) -> bytes:
    return kind + _string(header[0]) + _string(header[1])


def _string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return bytes(encode_integer(len(raw), 7)) + raw


class RememberingDecoder(Decoder):
    """Knows blocks it has seen that only point into the tables, for as long as the tables stay as they are."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[bytes, list[Any]] = {}

    def decode(self, data: bytes, raw: bool = False) -> Iterable[Any]:
        """See Decoder."""
        block = bytes(data)
        if not all(byte > _INDEXED and byte != _LONG_INDEX for byte in block):
            self._known.clear()
            return super().decode(block, raw)
        found = self._known.get(block)
        if not raw or found is None:
            found = list(super().decode(block, raw))
            if raw and len(self._known) < _MOST_KEPT:
                self._known[block] = found
        return found
