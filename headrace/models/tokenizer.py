"""The tokenizer inside a GGUF file, written as the files Hugging Face folders have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from headrace.models.errors import ModelError

_CONTROL, _USER_DEFINED = 3, 4  # token types of the GGUF format
_QWEN_SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3_SPLIT = _QWEN_SPLIT.replace(r"|\p{N}|", r"|\p{N}{1,3}|")


class Metadata(Protocol):
    """Key-value part of a GGUF file."""

    def get(self, key: str, default: Any = None) -> Any: ...


def write_tokenizer(meta: Metadata, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and the chat template. Raises ModelError for unknown kinds."""
    build_tokenizer(meta).save(str(folder / "tokenizer.json"))
    tokens = meta.get("tokenizer.ggml.tokens")
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "add_bos_token": bool(meta.get("tokenizer.ggml.add_bos_token", False)),
        "model_max_length": int(meta.get(f"{meta.get('general.architecture')}.context_length")),
    }
    for role, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        token_id = meta.get(f"tokenizer.ggml.{key}_token_id")
        if token_id is not None:
            config[f"{role}_token"] = tokens[token_id]
    template = meta.get("tokenizer.chat_template")
    if template:
        (folder / "chat_template.jinja").write_text(template)
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1, ensure_ascii=False))


def build_tokenizer(meta: Metadata) -> Tokenizer:
    """A byte-level BPE tokenizer equal to the one the file describes."""
    kind = meta.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise ModelError(f"tokenizer kind {kind!r} inside the GGUF cannot be converted (byte-level BPE, 'gpt2', can)")
    tokens = meta.get("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ", 1)) for merge in meta.get("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges, ignore_merges=_ignores_merges(meta)))
    tokenizer.pre_tokenizer = _splitter(str(meta.get("tokenizer.ggml.pre", "default")))
    tokenizer.decoder = decoders.ByteLevel()
    types = dict(zip(tokens, meta.get("tokenizer.ggml.token_type") or [1] * len(tokens), strict=True))
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in tokens if types[t] == _CONTROL])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in tokens if types[t] == _USER_DEFINED])
    tokenizer.post_processor = _begins_with(meta, tokens)
    return tokenizer


def _ignores_merges(meta: Metadata) -> bool:
    """Llama 3 takes a whole word that is in the vocabulary even where no merges lead to it."""
    return bool(meta.get("tokenizer.ggml.pre") == "llama-bpe")


def _splitter(pre: str) -> pre_tokenizers.PreTokenizer:
    """How text is cut into words before merging, by the name llama.cpp's converter gives it."""
    if pre in ("default", "gpt-2", "gpt2"):
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pre in ("smollm", "starcoder", "refact", "command-r"):
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    patterns = {"qwen2": _QWEN_SPLIT, "llama-bpe": _LLAMA3_SPLIT, "llama3": _LLAMA3_SPLIT}
    if pre not in patterns:
        raise ModelError(f"tokenizer splitting rule {pre!r} inside the GGUF is not known; use the model's Hugging Face folder")
    split = pre_tokenizers.Split(Regex(patterns[pre]), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _begins_with(meta: Metadata, tokens: list[str]) -> processors.PostProcessor:
    bos = meta.get("tokenizer.ggml.bos_token_id")
    if bos is None or not meta.get("tokenizer.ggml.add_bos_token", False):
        return processors.ByteLevel(trim_offsets=False)
    text = tokens[bos]
    return processors.TemplateProcessing(single=f"{text} $A", pair=f"{text} $A {text}:1 $B:1", special_tokens=[(text, bos)])
