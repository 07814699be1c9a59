"""A model without weights for whole-suite tests: a byte tokenizer, and a script that says the alphabet at a steady pace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from tests.unit.text.tokenizers_fixture import specs, write_folder

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
POISON = "poison"  # prompts that begin so meet logits that are not finite at their fourth token
TEXT = "".join(chr(c) for c in range(33, 127))  # what a chat template would add stays out of the way


def write_model(folder: Path, *, step_ms: float = 1.0, context: int = 16384, **script: Any) -> dict[str, dict[str, Any]]:
    """Write tokenizer and script; returns the settings by kind of component that serve them."""
    tokenizer = write_folder(folder, specs()["byte_level"])
    (folder / "chat.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    letters = library.encode(ALPHABET, add_special_tokens=False).ids
    end = library.token_to_id("</s>")
    played = {
        "model_name": "scripted",
        "vocab_size": library.get_vocab_size(),
        "context_length": context,
        "eos_token_ids": [end],
        "step_ms": step_ms,
        "playbacks": [
            {"prompt_prefix": library.encode(POISON, add_special_tokens=False).ids, "output": letters, "repeat": True, "invalid_at": 3},
            {"output": letters, "repeat": True},
        ],
        **script,
    }
    file = folder / "script.json"
    file.write_text(json.dumps(played))
    text = {"model_path": str(tokenizer)}
    worker = {"model_path": None, "load_format": "scripted", "script": str(file), "tokenizer_path": str(tokenizer), "cpu_threads": 1}
    return {"worker": worker, "tokenizer": {**text, "chat_template": str(folder / "chat.jinja")}, "detokenizer": text, "gateway": {}}


def expected(tokens: int, start: int = 0) -> str:
    """What the script says in that many tokens."""
    return "".join(ALPHABET[i % len(ALPHABET)] for i in range(start, start + tokens))
