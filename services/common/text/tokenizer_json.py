"""TokenBytes from a tokenizer.json, without the tokenizers library."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from services.common.text.decoder_rules import apply_rules, decoder_rules, start_matters
from services.common.text.errors import TokenizerUnavailable
from services.common.text.token_bytes import TokenBytes


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises TokenizerUnavailable naming the file."""
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TokenizerUnavailable(f"cannot read {path}: {error}") from error
    if not isinstance(loaded, dict):
        raise TokenizerUnavailable(f"cannot read {path}: expected a JSON object")
    return loaded


def load_tokenizer_json(path: Path, *, bos_token: str | None = None) -> TokenBytes:
    """The byte table of a tokenizer.json. `bos_token` is the begin-of-text token's text, from its configuration."""
    spec = read_json(path)
    try:
        return _table(spec, bos_token)
    except (KeyError, TypeError, ValueError) as error:
        raise TokenizerUnavailable(f"cannot understand {path}: {error!r}") from error


def _table(spec: Mapping[str, Any], bos_token: str | None) -> TokenBytes:
    added: list[Mapping[str, Any]] = spec.get("added_tokens") or []
    token_of = {token_id: token for token, token_id in _vocabulary(spec["model"])}
    token_of.update({entry["id"]: entry["content"] for entry in added})
    rules = decoder_rules(spec.get("decoder"))
    has_start = start_matters(spec.get("decoder"))
    pieces: list[bytes] = []
    start_pieces: dict[int, bytes] = {}
    for token_id in range(max(token_of, default=-1) + 1):
        token = token_of.get(token_id, "")
        pieces.append(apply_rules(rules, token, False) if token else b"")
        if has_start and token and (first := apply_rules(rules, token, True)) != pieces[-1]:
            start_pieces[token_id] = first
    return TokenBytes(
        pieces=pieces,
        special_ids=frozenset(entry["id"] for entry in added if entry.get("special")),
        added_ids=frozenset(entry["id"] for entry in added),
        start_pieces=start_pieces,
        missing_ids=frozenset(range(len(pieces))).difference(token_of),
        bos_id=next((i for i, token in token_of.items() if token == bos_token), None) if bos_token else None,
    )


def _vocabulary(model: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    vocabulary = model["vocab"]
    if isinstance(vocabulary, Mapping):
        yield from vocabulary.items()
    else:
        yield from ((entry[0], token_id) for token_id, entry in enumerate(vocabulary))
