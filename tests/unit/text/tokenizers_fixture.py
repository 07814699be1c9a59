"""Small tokenizers of every decoder family, made on the spot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from services.common.text.byte_level import BYTE_OF_CHARACTER

SPECIAL = ["<s>", "</s>", "<tool>"]


def _added(first: int, *, extra: tuple[str, ...] = ("<think>",)) -> list[dict[str, Any]]:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    entries = [{"content": text, "special": True, **plain} for text in SPECIAL]
    entries += [{"content": text, "special": False, **plain} for text in extra]
    return [{"id": first + index, **entry} for index, entry in enumerate(entries)]


def _spec(tokens: list[str], decoder: dict[str, Any] | None, **model: Any) -> dict[str, Any]:
    vocabulary = {token: index for index, token in enumerate(tokens)}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added(len(tokens)),
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": decoder,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": [], **model},
    }


WORDS = ["▁a", "▁", "a", "▁▁", "é", "東", "▁🐙", "b▁c", "<", ">", "</"]
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
REPLACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
FALLBACK = {"type": "ByteFallback"}
FUSE = {"type": "Fuse"}


def specs() -> dict[str, dict[str, Any]]:
    """Name -> tokenizer.json."""
    byte_level = [*BYTE_OF_CHARACTER, "Ġa", "Ã©", "æĿ±"]
    llama = {"type": "Sequence", "decoders": [REPLACE, FALLBACK, FUSE, STRIP]}
    gemma = {"type": "Sequence", "decoders": [REPLACE, FALLBACK, FUSE]}
    metaspace = {"type": "Metaspace", "replacement": "▁", "split": True}
    bytes_step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "byte_level": {**_spec(byte_level, bytes_step), "pre_tokenizer": bytes_step},
        "llama": _spec(WORDS + BYTE_TOKENS, llama, byte_fallback=True),
        "gemma": _spec(WORDS + BYTE_TOKENS, gemma, byte_fallback=True),
        "metaspace_always": _spec(WORDS, {**metaspace, "prepend_scheme": "always"}),
        "metaspace_first": _spec(WORDS, {**metaspace, "prepend_scheme": "first"}),
        "metaspace_never": _spec(WORDS, {**metaspace, "prepend_scheme": "never"}),
        "no_decoder": _spec(WORDS, None),
    }


def write_folder(folder: Path, spec: dict[str, Any]) -> Path:
    """A model folder with this tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(spec), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    return folder
