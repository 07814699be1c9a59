"""Text to ids: one interface, one implementation per kind of vocabulary file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from services.common.text.errors import TokenizerUnavailable
from services.common.text.sentencepiece_model import load_processor
from services.common.text.tokenizer_files import TokenizerFiles


class Tokenizer(Protocol):
    """Encodes; usable from several threads at once."""

    def encode_batch(self, texts: Sequence[str], *, add_special: bool) -> list[list[int]]:
        """Ids of each text. `add_special` adds what the model's configuration puts around a text."""

    def token_id(self, token: str) -> int | None:
        """Id of a token by its text."""


class LibraryTokenizer:
    """A tokenizer.json, by the tokenizers library, which lets go of the GIL while it encodes."""

    def __init__(self, files: TokenizerFiles) -> None:
        import tokenizers

        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(files.vocabulary))
        except Exception as error:  # the library raises plain Exception
            raise TokenizerUnavailable(f"cannot read {files.vocabulary}: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode_batch(self, texts: Sequence[str], *, add_special: bool) -> list[list[int]]:
        """Ids of each text."""
        if len(texts) == 1:
            return [self._tokenizer.encode(texts[0], add_special_tokens=add_special).ids]
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=add_special)]

    def token_id(self, token: str) -> int | None:
        """Id of a token by its text."""
        found: int | None = self._tokenizer.token_to_id(token)
        return found


class SentencePieceTokenizer:
    """A sentencepiece model. Names of control tokens in a text, as chat templates write them, stand for those tokens."""

    def __init__(self, files: TokenizerFiles) -> None:
        self._processor = load_processor(files.vocabulary)
        processor = self._processor
        self._control = {processor.id_to_piece(i): i for i in range(processor.get_piece_size()) if processor.is_control(i)}
        names = sorted(map(re.escape, self._control), key=len, reverse=True)
        self._split = re.compile("(" + "|".join(names) + ")") if names else None
        config = files.config()
        bos = processor.bos_id() if config.get("add_bos_token", True) else -1
        eos = processor.eos_id() if config.get("add_eos_token", False) else -1
        self._before = [bos] if bos >= 0 else []
        self._after = [eos] if eos >= 0 else []

    def encode_batch(self, texts: Sequence[str], *, add_special: bool) -> list[list[int]]:
        """Ids of each text."""
        bodies = [self._encode(text) for text in texts]
        return [[*self._before, *body, *self._after] for body in bodies] if add_special else bodies

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for part in self._split.split(text) if self._split is not None else [text]:
            if part in self._control:
                ids.append(self._control[part])
            elif part:
                ids.extend(self._processor.encode(part))
        return ids

    def token_id(self, token: str) -> int | None:
        """Id of a token by its text."""
        found = int(self._processor.piece_to_id(token))
        return None if self._processor.is_unknown(found) and token != self._processor.id_to_piece(found) else found


def load_tokenizer(files: TokenizerFiles) -> Tokenizer:
    """The tokenizer of a model folder. Raises TokenizerUnavailable."""
    return SentencePieceTokenizer(files) if files.is_sentencepiece else LibraryTokenizer(files)
