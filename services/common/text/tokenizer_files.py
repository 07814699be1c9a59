"""Which files of a model folder make its tokenizer, their digest, and their byte table."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.common.text.errors import TokenizerUnavailable
from services.common.text.sentencepiece_model import load_sentencepiece_model
from services.common.text.token_bytes import TokenBytes
from services.common.text.tokenizer_json import load_tokenizer_json, read_json

_DIGESTED = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "chat_template.jinja", "chat_template.json")
_DIGEST_LENGTH = 32


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """A model folder that has a tokenizer. `vocabulary` is its tokenizer.json or its sentencepiece model."""

    folder: Path
    vocabulary: Path

    @property
    def is_sentencepiece(self) -> bool:
        """Whether the vocabulary is a sentencepiece model."""
        return self.vocabulary.suffix == ".model"

    def config(self, name: str = "tokenizer_config.json") -> dict[str, Any]:
        """A JSON file of the folder; empty if there is none."""
        path = self.folder / name
        return read_json(path) if path.exists() else {}

    def special_text(self, role: str) -> str | None:
        """Text of the token with a role such as "bos_token", as the configuration names it."""
        entry = self.config().get(role)
        text = entry.get("content") if isinstance(entry, dict) else entry
        return text if isinstance(text, str) else None


def find_tokenizer(path: str | Path) -> TokenizerFiles:
    """The tokenizer of a model folder, or of a tokenizer file in it. Raises TokenizerUnavailable."""
    given = Path(path)
    if given.is_file() and (given.suffix == ".model" or given.name == "tokenizer.json"):
        return TokenizerFiles(given.parent, given)
    if not given.is_dir():
        raise TokenizerUnavailable(f"no tokenizer at {given}: no such folder")
    for name in ("tokenizer.json", "tokenizer.model"):
        if (given / name).is_file():
            return TokenizerFiles(given, given / name)
    raise TokenizerUnavailable(f"no tokenizer in {given}: neither tokenizer.json nor tokenizer.model")


def tokenizer_digest(files: TokenizerFiles) -> str:
    """128 bits, in hex, over every file that decides how text becomes ids and back. Equal in all services."""
    total = hashlib.sha256()
    paths = {files.folder / name for name in _DIGESTED} | {files.vocabulary}
    for path in sorted(paths):
        if path.is_file():
            total.update(f"{path.name}\0{path.stat().st_size}\0".encode())
            total.update(path.read_bytes())
    return total.hexdigest()[:_DIGEST_LENGTH]


def load_token_bytes(files: TokenizerFiles) -> TokenBytes:
    """The byte table. Raises TokenizerUnavailable."""
    if files.is_sentencepiece:
        return load_sentencepiece_model(files.vocabulary)
    return load_tokenizer_json(files.vocabulary, bos_token=files.special_text("bos_token"))
