"""Prompts: same seed, same bytes; lengths as asked; files read or refused with a reason."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from headrace.bench.config import BenchConfig
from headrace.bench.datasets.build import build
from headrace.bench.record import BenchRequest
from services.common.config import ConfigError


def made(**settings: Any) -> list[BenchRequest]:
    return build(BenchConfig(**settings), None)


@pytest.mark.parametrize("name", ["random", "shared-prefix", "conversations"])
def test_same_seed_same_prompts(name: str) -> None:
    settings: dict[str, Any] = {"dataset_name": name, "num_prompts": 20, "gsp_num_groups": 3, "gsp_prompts_per_group": 4}
    assert made(**settings, seed=1) == made(**settings, seed=1) != made(**settings, seed=2)


def test_lengths_are_exact_unless_a_ratio_is_given() -> None:
    exact = made(num_prompts=32, random_input_len=512, random_output_len=128)
    assert sum(len(r.prompt_ids) for r in exact) == 16384
    assert sum(r.output_len for r in exact) == 4096
    loose = made(num_prompts=1000, random_input_len=512, random_range_ratio=0.0)
    assert 240 <= mean(len(r.prompt_ids) for r in loose) <= 273
    half = made(num_prompts=500, random_input_len=100, random_range_ratio=0.5)
    assert {min(len(r.prompt_ids) for r in half), max(len(r.prompt_ids) for r in half)} == {50, 100}


def test_groups_share_exactly_their_prefix() -> None:
    sizes = {"gsp_num_groups": 4, "gsp_prompts_per_group": 16, "gsp_system_prompt_len": 100, "gsp_question_len": 28}
    requests = made(dataset_name="shared-prefix", **sizes)
    assert len(requests) == 64
    assert {len(r.prompt_ids) for r in requests} == {128}
    assert sorted(Counter(r.prompt_ids[:100] for r in requests).values()) == [16] * 4
    assert len({r.prompt_ids for r in requests}) == 64
    loose = made(dataset_name="shared-prefix", **sizes, gsp_range_ratio=0.5)
    assert (min(len(r.prompt_ids) for r in loose), max(len(r.prompt_ids) for r in loose)) == (114, 128)


def write(path: Path, *entries: Any) -> str:
    path.write_text("\n".join(json.dumps(entry) for entry in entries))
    return str(path)


def test_sharegpt_takes_first_questions_that_were_answered(tmp_path: Path) -> None:
    file = tmp_path / "sharegpt.json"
    talk = [{"from": "human", "value": "Why is water wet?"}, {"from": "gpt", "value": "x" * 40}]
    file.write_text(json.dumps([{"conversations": talk}, {"conversations": talk[:1]}, {"conversations": []}]))
    requests = made(dataset_name="sharegpt", dataset_path=str(file))
    assert [(r.text, r.output_len) for r in requests] == [("Why is water wet?", 10)]  # four bytes a token without a tokenizer
    assert made(dataset_name="sharegpt", dataset_path=str(file), sharegpt_output_len=7)[0].output_len == 7


def test_custom_lines(tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "x"}]}
    path = write(tmp_path / "c.jsonl", {"prompt": "hi", "output_len": 3}, {"prompt": [1, 2]})
    one, two = made(dataset_name="custom", dataset_path=path)
    assert (one.text, one.output_len) == ("hi", 3)
    assert two.prompt_ids == (1, 2)
    (three,) = made(dataset_name="custom", dataset_path=write(tmp_path / "m.jsonl", chat), backend="openai-chat")
    assert three.messages == ({"role": "user", "content": "x"},)


def test_traces_keep_times_and_shared_blocks(tmp_path: Path) -> None:
    entry = {"input_length": 1100, "output_length": 9, "hash_ids": [1, 2]}
    path = write(tmp_path / "t.jsonl", {**entry, "timestamp": 5000}, {**entry, "timestamp": 7500, "hash_ids": [1, 3]})
    first, second = made(dataset_name="trace", dataset_path=path)
    assert (first.at_s, second.at_s) == (0.0, 2.5)
    assert len(first.prompt_ids) == 1100
    assert first.prompt_ids[:512] == second.prompt_ids[:512]
    assert first.prompt_ids[512:] != second.prompt_ids[512:]
    assert made(dataset_name="trace", dataset_path=path, use_trace_timestamps=False)[1].at_s is None


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"prompt": "a"}\nnot json\n')
    with pytest.raises(ConfigError, match="line 2 is not JSON"):
        made(dataset_name="custom", dataset_path=str(tmp_path / "bad.jsonl"))
    with pytest.raises(ConfigError, match="needs a file"):
        made(dataset_name="trace")
    with pytest.raises(ConfigError, match="neither prompt nor messages"):
        made(dataset_name="custom", dataset_path=write(tmp_path / "n.jsonl", {"q": 1}))
    chat = write(tmp_path / "m.jsonl", {"messages": [{"role": "user", "content": "x"}]})
    with pytest.raises(ConfigError, match="only --backend openai-chat can send"):
        made(dataset_name="custom", dataset_path=chat)
    with pytest.raises(ConfigError, match="the chat door takes text only"):
        made(backend="openai-chat")
