"""Prompts out of files: ShareGPT-style JSON, one JSON object per line, traces with timestamps."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headrace.bench.config import Workload
from headrace.bench.record import BenchRequest
from services.common.config import ConfigError

CountTokens = Callable[[str], int]
_TRACE_BLOCK = 512  # tokens that one hash id of a trace stands for


def sharegpt(config: Workload, count: CountTokens) -> list[BenchRequest]:
    """First question of each conversation that has an answer; a sample of `num_prompts` without replacement."""
    try:
        dialogues = json.loads(_path(config).read_text())
    except ValueError as error:
        raise ConfigError(f"--dataset-path: not JSON: {error}") from error
    pairs = []
    for dialogue in dialogues:
        turns = dialogue.get("conversations") or dialogue.get("conversation") or []
        if len(turns) >= 2:
            question, answer = (str(turn.get("value", turn.get("content", ""))) for turn in turns[:2])
            if question and answer:
                pairs.append((question, answer))
    if not pairs:
        raise ConfigError("--dataset-path: no conversation with a question and an answer in it")
    random.Random(f"sharegpt {config.seed}").shuffle(pairs)
    return [
        BenchRequest(text=question, output_len=config.sharegpt_output_len or max(1, count(answer)))
        for question, answer in pairs[: config.num_prompts]
    ]


def custom(config: Workload) -> list[BenchRequest]:
    """Lines with `prompt` (text or token ids) or `messages`, and optionally `output_len`; the first `num_prompts`."""
    return [_line(entry, config) for _, entry in zip(range(config.num_prompts), _entries(config), strict=False)]


def trace(config: Workload, *, timed: bool) -> list[BenchRequest]:
    """Lines with `timestamp` (ms), `input_length`, `output_length` and `hash_ids`, or a prompt as in custom.

    Equal hash ids become equal blocks of 512 tokens, so that prompts share what they shared when the trace was taken.
    """
    requests = []
    first: float | None = None
    for number, entry in zip(range(config.num_prompts), _entries(config), strict=False):
        at = float(entry.get("timestamp", 0)) / 1000
        first = at if first is None else first
        made = _line(entry, config) if "input_length" not in entry else _from_hashes(entry, number, config)
        requests.append(BenchRequest(made.prompt_ids, made.text, made.messages, made.output_len, at_s=at - first if timed else None))
    return requests


def _from_hashes(entry: dict[str, Any], number: int, config: Workload) -> BenchRequest:
    low, high = (int(part) for part in config.random_id_range.split(":"))
    length, ids = int(entry["input_length"]), list[int]()
    for block in entry.get("hash_ids", []):
        draw = random.Random(f"block {config.seed} {block}")
        ids += [draw.randrange(low, high) for _ in range(_TRACE_BLOCK)]
    draw = random.Random(f"tail {config.seed} {number}")
    ids += [draw.randrange(low, high) for _ in range(length - len(ids))]
    return BenchRequest(prompt_ids=tuple(ids[:length]), output_len=max(1, int(entry.get("output_length", 128))))


def _line(entry: dict[str, Any], config: Workload) -> BenchRequest:
    output = int(entry.get("output_len", entry.get("output_length", config.random_output_len)))
    if "messages" in entry:
        return BenchRequest(messages=tuple(entry["messages"]), output_len=output)
    prompt = entry.get("prompt", entry.get("text"))
    if isinstance(prompt, list):
        return BenchRequest(prompt_ids=tuple(int(token) for token in prompt), output_len=output)
    if not isinstance(prompt, str):
        raise ConfigError("--dataset-path: a line has neither prompt nor messages")
    return BenchRequest(text=prompt, output_len=output)


def _entries(config: Workload) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(_path(config).read_text().splitlines(), 1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise ConfigError(f"--dataset-path: line {number} is not JSON: {error}") from error


def _path(config: Workload) -> Path:
    path = Path(config.dataset_path)
    if not config.dataset_path or not path.is_file():
        raise ConfigError(f"--dataset-path: {config.dataset_path or 'not given'}: dataset {config.dataset_name} needs a file")
    return path
