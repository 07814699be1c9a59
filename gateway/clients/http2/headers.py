"""Header blocks without their cost: ours hardly differ from call to call, and a peer's are nearly always the same few bytes."""

from __future__ import annotations

from collections.abc import Sequence

from h2.exceptions import ProtocolError
from hpack import Decoder, HPACKError
from hpack.hpack import encode_integer

_PLAIN, _SECRET, _NO_TABLE = b"\0", b"\x10", b"\x20"
_MOST_KEPT = 64


class HeaderSpeller:
    """Every header is a literal outside the tables (RFC 7541, 6.2.2 and 6.2.3): nothing to search, nothing for the peer to keep.

    The first block says so (6.3); no later setting of the peer's then asks for more.
    """

    def __init__(self) -> None:
        self._begin = _NO_TABLE
        self._fixed: dict[tuple[tuple[str, str], ...], bytes] = {}

    def spell(self, fixed: tuple[tuple[str, str], ...], own: Sequence[tuple[str, str]]) -> bytes:
        """One block. `fixed` comes again in other calls; `own`, which may hold a token, is to be indexed by nobody on the way."""
        found = self._fixed.get(fixed)
        if found is None:
            found = b"".join(_literal(_PLAIN, *header) for header in fixed)
            if len(self._fixed) < _MOST_KEPT:
                self._fixed[fixed] = found
        begin, self._begin = self._begin, b""
        return b"".join((begin, found, *(_literal(_SECRET, *header) for header in own)))


def _literal(kind: bytes, name: str, value: str) -> bytes:
    return kind + _string(name) + _string(value)


def _string(text: str) -> bytes:
    raw = text.encode()
    return bytes(encode_integer(len(raw), 7)) + raw


class HeaderReader:
    """Decodes blocks; one that changed nothing in the table means the same until another does."""

    def __init__(self, most_bytes: int) -> None:
        self._decoder = Decoder(most_bytes)
        self._known: dict[bytes, list[tuple[str, str]]] = {}

    def read(self, block: bytes) -> list[tuple[str, str]]:
        """Names and values. Raises ProtocolError."""
        found = self._known.get(block)
        if found is None:
            table = self._decoder.header_table
            before = (table.maxsize, len(table.dynamic_entries), self._newest())
            try:
                found = [(str(name), str(value)) for name, value in self._decoder.decode(block)]
            except HPACKError as error:
                raise ProtocolError(f"headers that cannot be read: {error}") from error
            size, entries, newest = before
            if (table.maxsize, len(table.dynamic_entries)) != (size, entries) or self._newest() is not newest:
                self._known.clear()
            elif len(self._known) < _MOST_KEPT:
                self._known[block] = found
        return found

    def _newest(self) -> object:
        """The entry at the front: whatever changes the table puts one there, or takes some away."""
        entries = self._decoder.header_table.dynamic_entries
        return entries[0] if entries else None
