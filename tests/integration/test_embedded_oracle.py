"""The embedded model in float32 against `transformers`: fifty prompts, alone, in mixed batches, cached and not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, PreTrainedModel

from headrace.models.catalog import DEFAULT_MODEL
from headrace.models.resolve import resolve
from headrace.models.store import ModelStore
from services.common.config import cache_dir
from services.scheduler.engine.interface import Engine
from tests.unit.engine.driver import Driver, Row, native_engine

pytestmark = [pytest.mark.model, pytest.mark.slow]

_TOKENS = 12
_NEAR_TIE = 1e-4
_SUBJECTS = (
    "The capital of France",
    "Water boils at",
    "A haiku about rivers:",
    "def fibonacci(n):\n",
    "Once upon a time there was a mill, and",
    "The three primary colours are",
    "Dear Sir or Madam,",
    "1, 1, 2, 3, 5, 8,",
    "Translate to French: good morning ->",
    "Das Wetter heute ist",
)
_ENDINGS = ("", " is", " because", "\n\nAnswer:", " — in short,")


@pytest.fixture(scope="module")
def folder() -> Path:
    return resolve(DEFAULT_MODEL, ModelStore(cache_dir()), print).folder


@pytest.fixture(scope="module")
def oracle(folder: Path) -> PreTrainedModel:
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)  # loaded for inference
    return model


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    made = native_engine(folder, 8192, 512, num_threads=2, max_rows=256)
    yield made
    made.close()


@pytest.fixture(scope="module")
def prompts(folder: Path) -> list[list[int]]:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return [tokenizer.encode(subject + ending).ids for subject in _SUBJECTS for ending in _ENDINGS]


@torch.no_grad()
def _is_greedy(model: PreTrainedModel, prompt: list[int], ours: list[int]) -> bool:
    """Whether each id is the oracle's first choice after all before it, up to a near tie, after which texts may part."""
    logits = model(torch.tensor([prompt + ours[:-1]])).logits[0, len(prompt) - 1 :]
    for row, token in zip(logits, ours, strict=True):
        best = row.topk(2)
        if int(best.indices[0]) != token:
            return float(best.values[0] - best.values[1]) < _NEAR_TIE
    return True


def test_fifty_greedy_texts_are_the_oracles(engine: Engine, oracle: PreTrainedModel, prompts: list[list[int]]) -> None:
    driver = Driver(engine)
    together = [driver.open(prompt) for prompt in prompts]
    driver.generate(together, _TOKENS)
    assert all(_is_greedy(oracle, prompt, row.output) for prompt, row in zip(prompts, together, strict=True))
    for source in together[::10]:
        alone, cached = _again(driver, source, 0), _again(driver, source, source.prompt_len - 1)
        assert alone.output == cached.output == source.output


def _again(driver: Driver, source: Row, reuse: int) -> Row:
    row = driver.open(source.ids[: source.prompt_len], shared=source, reuse=reuse)
    driver.generate([row], _TOKENS)
    return row
