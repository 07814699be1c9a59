"""The vocabulary a grammar backend works on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from services.common.text.token_bytes import TokenBytes
from services.scheduler.grammar.interface import GrammarSpec, InvalidGrammar
from services.scheduler.grammar.spelling import Encoder, Spelling

T = TypeVar("T")
_MOST_VARIANTS = 4


@dataclass(frozen=True, slots=True)
class GrammarVocabulary:
    """Bytes of each id [vocab_size of the model]; empty for special ids and for rows without a token.

    spelling: how the model's tokenizer writes text; without it nothing is forced but what the masks force.
    """

    pieces: Sequence[bytes]
    special: Sequence[tuple[int, bytes]]
    end_ids: tuple[int, ...]
    spelling: Spelling | None = None

    @property
    def size(self) -> int:
        """Rows of the model's output."""
        return len(self.pieces)

    @property
    def mask_words(self) -> int:
        """Words of a mask over it."""
        return -(-self.size // 32)

    def with_text(self, ids: Sequence[int]) -> GrammarVocabulary:
        """The vocabulary in which these special ids are the text they are spelled with. End ids stay what they are."""
        as_text = set(ids).difference(self.end_ids)
        pieces = list(self.pieces)
        for token_id, piece in self.special:
            if token_id in as_text:
                pieces[token_id] = piece
        special = [entry for entry in self.special if entry[0] not in as_text]
        spelling = self.spelling.over(pieces) if self.spelling is not None else None
        return replace(self, pieces=pieces, special=special, spelling=spelling)


def grammar_vocabulary(tokens: TokenBytes, vocab_size: int, end_ids: Sequence[int], encode: Encoder | None = None) -> GrammarVocabulary:
    """`vocab_size` is the model's, which may have more rows than the tokenizer has tokens, or fewer."""
    visible = list(tokens.visible_pieces[:vocab_size])
    visible += [b""] * (vocab_size - len(visible))
    special = [(token_id, tokens.piece(token_id)) for token_id in sorted(tokens.special_ids) if token_id < vocab_size]
    ends = tuple(token_id for token_id in end_ids if 0 <= token_id < vocab_size)
    return GrammarVocabulary(visible, special, ends, Spelling(visible, encode) if encode is not None else None)


class PerVocabulary(Generic[T]):
    """What a backend makes of a vocabulary, once for each set of special ids that count as text. Few sets are in use."""

    def __init__(self, vocabulary: GrammarVocabulary, make: Callable[[GrammarVocabulary], T]) -> None:
        self._vocabulary = vocabulary
        self._make = make
        self._made: dict[tuple[int, ...], T] = {(): make(vocabulary)}
        self._lock = threading.Lock()

    def of(self, spec: GrammarSpec) -> T:
        """The one for a constraint. Raises InvalidGrammar where more sets were asked for than a worker keeps."""
        with self._lock:
            found = self._made.get(spec.text_ids)
            if found is None:
                if len(self._made) > _MOST_VARIANTS:
                    raise InvalidGrammar(f"more than {_MOST_VARIANTS} different sets of special tokens kept as text", spec.kind)
                found = self._made[spec.text_ids] = self._make(self._vocabulary.with_text(spec.text_ids))
            return found

    def all(self) -> list[T]:
        """All that were made."""
        with self._lock:
            return list(self._made.values())
