"""How text that must come next is spelled in tokens: as the model's tokenizer spells it, which is what the model learned from."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from services.common.text.errors import TokenizerUnavailable
from services.common.text.sentencepiece_model import load_processor
from services.common.text.tokenizer_files import find_tokenizer

Encoder = Callable[[str], Sequence[int]]
_ANCHOR = "\x02"
_REMEMBERED = 4096


def load_encoder(path: Path) -> Encoder | None:
    """The tokenizer of a model folder as a function; None where it has none, or one that only lists its tokens."""
    try:
        files = find_tokenizer(path)
    except TokenizerUnavailable:
        return None
    if files.is_sentencepiece:
        processor = load_processor(files.vocabulary)
        return lambda text: list(processor.encode(text))
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(files.vocabulary))
    tokenizer.encode_special_tokens = True  # a special token that is spelled out is text
    return lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids)


class Spelling:
    """Spells text over one vocabulary; `pieces` are the bytes of each id."""

    def __init__(self, pieces: Sequence[bytes], encode: Encoder) -> None:
        self._pieces = pieces
        self._encode = encode
        self._anchor = tuple(encode(_ANCHOR))
        self._order = np.array(sorted(range(len(pieces)), key=pieces.__getitem__), np.int64)
        self._sorted = [pieces[token] for token in self._order.tolist()]
        self._remembered = lru_cache(_REMEMBERED)(self._spelled)

    def over(self, pieces: Sequence[bytes]) -> Spelling:
        """The same tokenizer over other pieces."""
        return Spelling(pieces, self._encode)

    def ids(self, text: str) -> tuple[int, ...]:
        """The ids of a text in the middle of an output; empty where the tokenizer would write something else there."""
        return self._remembered(text)

    def piece(self, token_id: int) -> bytes:
        """Bytes of an id."""
        return self._pieces[token_id]

    def longer(self, start: bytes) -> npt.NDArray[np.int64]:
        """Ids whose bytes begin with `start` and go on."""
        first = bisect_right(self._sorted, start)
        found: npt.NDArray[np.int64] = self._order[first : bisect_left(self._sorted, _behind(start), first)]
        return found

    def _spelled(self, text: str) -> tuple[int, ...]:
        """A tokenizer that puts a space before a text does so before the anchor, which is then cut off."""
        plain = tuple(self._encode(text))
        if self._spells(plain, text):
            return plain
        anchored, skip = tuple(self._encode(_ANCHOR + text)), len(self._anchor)
        return anchored[skip:] if anchored[:skip] == self._anchor and self._spells(anchored[skip:], text) else ()

    def _spells(self, ids: Sequence[int], text: str) -> bool:
        return all(i < len(self._pieces) and self._pieces[i] for i in ids) and b"".join(self._pieces[i] for i in ids) == text.encode()


def _behind(start: bytes) -> bytes:
    """The least bytes above all that begin with `start`, which is shorter than any run of the highest byte that occurs."""
    return start + b"\xff" * 64
