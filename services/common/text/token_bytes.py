"""Bytes of every token id: the one table that stop matching, detokenizing and grammars are built on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

NO_PIECES: Mapping[int, bytes] = {}


@dataclass(frozen=True)
class TokenBytes:
    """Immutable and shared by all requests.

    `pieces[i]` are the bytes id i adds to a text; ids without a token add none. `start_pieces` holds the ids that
    add something else at the very start of a text (a sentencepiece word loses its leading space there).
    """

    pieces: Sequence[bytes]
    special_ids: frozenset[int] = frozenset()
    added_ids: frozenset[int] = frozenset()
    start_pieces: Mapping[int, bytes] = field(default_factory=lambda: NO_PIECES)
    start_lasts: bool = False
    missing_ids: frozenset[int] = frozenset()
    bos_id: int | None = None
    kind: str = "tokenizers"

    @property
    def vocab_size(self) -> int:
        """One more than the largest id that has a token."""
        return len(self.pieces)

    @cached_property
    def visible_pieces(self) -> Sequence[bytes]:
        """`pieces` with every special id silent."""
        return [b"" if token_id in self.special_ids else piece for token_id, piece in enumerate(self.pieces)]

    def piece(self, token_id: int, *, at_start: bool = False) -> bytes:
        """Bytes of one id, special or not; empty for an id without a token."""
        if at_start and token_id in self.start_pieces:
            return self.start_pieces[token_id]
        return self.pieces[token_id] if token_id < len(self.pieces) else b""

    def starts_text(self, context_ids: Sequence[int]) -> bool:
        """True if output after this context begins a text: nothing stands before it but a begin-of-text token."""
        return all(token_id == self.bos_id for token_id in context_ids)


class OutputBytes:
    """Turns the output ids of one choice into bytes, in order. The result does not depend on how ids are grouped."""

    __slots__ = ("_at_start", "_hidden", "_plain", "_previous", "_spaces", "_tokens")

    def __init__(
        self,
        tokens: TokenBytes,
        *,
        context_ids: Sequence[int] = (),
        skip_special: bool = True,
        keep_special_ids: Collection[int] = (),
        spaces_between_special: bool = False,
    ) -> None:
        self._tokens = tokens
        self._hidden: frozenset[int] = tokens.special_ids.difference(keep_special_ids) if skip_special else frozenset()
        self._spaces = spaces_between_special and bool(tokens.added_ids)
        self._at_start = bool(tokens.start_pieces) and tokens.starts_text(context_ids)
        self._previous = _NOTHING
        self._plain = not (self._at_start or self._spaces)

    @property
    def table(self) -> Sequence[bytes] | None:
        """Pieces by id if they no longer depend on their place and no choice of special ids was made; else None."""
        if not self._plain or self._hidden not in (_NONE, self._tokens.special_ids):
            return None
        return self._tokens.visible_pieces if self._hidden else self._tokens.pieces

    def piece(self, token_id: int) -> bytes:
        """Bytes added by the next output id; empty for a hidden or unknown one."""
        if token_id in self._hidden:
            return b""
        if self._plain:
            pieces = self._tokens.pieces
            return pieces[token_id] if token_id < len(pieces) else b""
        return self._placed(token_id)

    def _placed(self, token_id: int) -> bytes:
        tokens = self._tokens
        if token_id >= len(tokens.pieces) or token_id in tokens.missing_ids:
            return b""
        piece = tokens.pieces[token_id]
        if self._at_start:
            piece = tokens.start_pieces.get(token_id, piece)
            self._at_start = tokens.start_lasts and not piece
            self._plain = not (self._at_start or self._spaces)
        if self._spaces:
            kind = _ADDED if token_id in tokens.added_ids else _TEXT
            if self._previous != _NOTHING and _ADDED in (kind, self._previous):
                piece = b" " + piece
            self._previous = kind
        return piece


_NOTHING, _TEXT, _ADDED = range(3)
_NONE: frozenset[int] = frozenset()
