"""Everything the service knows of its one model, loaded once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from services.common.text.token_bytes import TokenBytes
from services.common.text.tokenizer_files import TokenizerFiles, find_tokenizer, load_token_bytes, tokenizer_digest
from services.tokenizer.chat_template import ChatTemplates, load_templates
from services.tokenizer.tokenizer import Tokenizer, load_tokenizer

_SAMPLING_DEFAULTS = (
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "max_new_tokens"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TokenizerModel:
    """A loaded tokenizer with its templates and what its folder says of it."""

    name: str
    kind: str
    digest: str
    tokenizer: Tokenizer
    tokens: TokenBytes
    templates: ChatTemplates
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    special_tokens: dict[str, int]
    generation_defaults: dict[str, Any]

    @property
    def generation_defaults_json(self) -> str:
        """Sampling defaults as JSON; empty if there are none."""
        return json.dumps(self.generation_defaults) if self.generation_defaults else ""


def load_model(path: str, *, name: str, chat_template: str | None) -> TokenizerModel:
    """Load from a model folder. Raises TokenizerUnavailable with the reason."""
    files = find_tokenizer(path)
    tokenizer, tokens = load_tokenizer(files), load_token_bytes(files)
    generation = files.config("generation_config.json")
    return TokenizerModel(
        name=name,
        kind=tokens.kind,
        digest=tokenizer_digest(files),
        tokenizer=tokenizer,
        tokens=tokens,
        templates=load_templates(files, chat_template),
        bos_token_id=tokens.bos_id,
        eos_token_ids=_eos_ids(files, tokenizer, generation),
        special_tokens={tokens.piece(i).decode(errors="replace"): i for i in sorted(tokens.added_ids)},
        generation_defaults={key: generation[key] for key in _SAMPLING_DEFAULTS if generation.get(key) is not None},
    )


def _eos_ids(files: TokenizerFiles, tokenizer: Tokenizer, generation: dict[str, Any]) -> tuple[int, ...]:
    """Ids that end an answer: the generation configuration's, else the model's, and the tokenizer's own."""
    named = generation.get("eos_token_id", files.config("config.json").get("eos_token_id"))
    ids = [named] if isinstance(named, int) else list(named or [])
    text = files.special_text("eos_token")
    own = tokenizer.token_id(text) if text is not None else None
    return tuple(dict.fromkeys([*ids, *([own] if own is not None else [])]))
