"""The requests of a configuration, in the form its backend can send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from headrace.bench.config import BenchConfig
from headrace.bench.datasets import files, synthetic
from headrace.bench.record import BenchRequest
from services.common.config import ConfigError

_FAR = 1_000_003  # between the seeds of a run and of its warm-up
_BYTES_PER_TOKEN = 4  # a rule of thumb, used only without a tokenizer


class Tokenizer(Protocol):
    """The part of tokenizers.Tokenizer that is needed."""

    def encode(self, sequence: Any, /) -> Any: ...

    def decode(self, ids: Any, /) -> str: ...


def load_tokenizer(folder: str) -> Tokenizer | None:
    """The tokenizer in a model's folder, or None for an empty path. Raises ConfigError."""
    if not folder:
        return None
    from tokenizers import Tokenizer as Fast  # loaded only where asked for

    file = Path(folder) / "tokenizer.json" if Path(folder).is_dir() else Path(folder)
    try:
        loaded: Tokenizer = Fast.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise ConfigError(f"--tokenizer: {file}: {error}") from error
    return loaded


def build(config: BenchConfig, tokenizer: Tokenizer | None) -> list[BenchRequest]:
    """Requests in the order they are sent. Raises ConfigError."""

    def count(text: str) -> int:
        return len(tokenizer.encode(text).ids) if tokenizer is not None else len(text.encode()) // _BYTES_PER_TOKEN

    makers: dict[str, Callable[[], list[BenchRequest]]] = {
        "random": lambda: synthetic.uniform(config),
        "random-ids": lambda: synthetic.uniform(config),  # elsewhere random is text; here both are ids
        "shared-prefix": lambda: synthetic.shared_prefix(config),
        "conversations": lambda: synthetic.conversations(config),
        "sharegpt": lambda: files.sharegpt(config, count),
        "custom": lambda: files.custom(config),
        "trace": lambda: files.trace(config, timed=config.use_trace_timestamps),
    }
    requests = makers[config.dataset_name]()
    if not requests:
        raise ConfigError(f"dataset {config.dataset_name} holds no request")
    if config.backend != "openai-chat":
        if any(r.messages and not r.text for r in requests):
            raise ConfigError("--dataset-path: a line has messages, which only --backend openai-chat can send")
        return requests
    return [replace(r, text=_as_text(r.prompt_ids, tokenizer), prompt_ids=()) if r.prompt_ids else r for r in requests]


def warm_up(config: BenchConfig, tokenizer: Tokenizer | None) -> list[BenchRequest]:
    """As many requests as are thrown away first; their prompts are none of the run's, so that none of those is in a cache."""
    if config.backend != "openai-chat" or tokenizer is not None:
        return build(replace(config, seed=config.seed + _FAR, num_prompts=config.warmup_requests, dataset_name="random"), tokenizer)
    asked = (f"Warm-up {config.seed + _FAR + i}: say something about water." for i in range(config.warmup_requests))
    return [BenchRequest(text=text, output_len=config.random_output_len) for text in asked]


def _as_text(ids: tuple[int, ...], tokenizer: Tokenizer | None) -> str:
    """Text of about that many tokens: a chat door takes no ids."""
    if tokenizer is None:
        raise ConfigError("--tokenizer: the chat door takes text only, so random prompts need the model's tokenizer")
    return tokenizer.decode(list(ids))
