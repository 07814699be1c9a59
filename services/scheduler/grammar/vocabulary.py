"""The vocabulary a grammar backend works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.common.text.token_bytes import TokenBytes


@dataclass(frozen=True, slots=True)
class GrammarVocabulary:
    """Bytes of each id [vocab_size of the model]; empty for special ids and for rows without a token."""

    pieces: Sequence[bytes]
    special: Sequence[tuple[int, bytes]]
    end_ids: tuple[int, ...]

    @property
    def size(self) -> int:
        """Rows of the model's output."""
        return len(self.pieces)

    @property
    def mask_words(self) -> int:
        """Words of a mask over it."""
        return -(-self.size // 32)


def grammar_vocabulary(tokens: TokenBytes, vocab_size: int, end_ids: Sequence[int]) -> GrammarVocabulary:
    """`vocab_size` is the model's, which may have more rows than the tokenizer has tokens, or fewer."""
    visible = list(tokens.visible_pieces[:vocab_size])
    visible += [b""] * (vocab_size - len(visible))
    special = [(token_id, tokens.piece(token_id)) for token_id in sorted(tokens.special_ids) if token_id < vocab_size]
    return GrammarVocabulary(visible, special, tuple(token_id for token_id in end_ids if 0 <= token_id < vocab_size))
