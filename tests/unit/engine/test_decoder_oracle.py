"""The PyTorch path against `transformers` on the same weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from services.scheduler.core.plan import SamplingSpec
from tests.unit.engine.driver import Driver, torch_engine
from tests.unit.engine.models import KINDS, oracle_logits, save_tiny

_LOGPROBS = SamplingSpec(temperature=0.0, logprobs=True, logprob_ids=tuple(range(300)))


@pytest.fixture(scope="module", params=sorted(KINDS))
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PreTrainedModel]:
    folder = tmp_path_factory.mktemp(request.param)
    return folder, save_tiny(request.param, folder)


def _prompts(count: int, seed: int = 1) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(3, 300, int(rng.integers(2, 60))).tolist() for _ in range(count)]


def _greedy(model: PreTrainedModel, prompt: list[int], count: int) -> list[int]:
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(oracle_logits(model, ids)[-1].argmax()))
    return ids[len(prompt) :]


def test_every_position_has_the_oracles_logprobs(tiny: tuple[Path, PreTrainedModel]) -> None:
    folder, model = tiny
    driver = Driver(torch_engine(folder))
    prompt = _prompts(1)[0] + [9] * 20
    row = driver.open(prompt, _LOGPROBS)
    row.prompt_logprobs_from = 1
    result = driver.step((row, len(prompt)))
    expected = torch.log_softmax(oracle_logits(model, prompt), -1).numpy()
    found = np.array([entry.ids for entry in result.prompt_logprobs[row.row]] + [result.logprobs[row.row].ids])
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_greedy_ids_are_equal_alone_batched_chunked_and_cached(tiny: tuple[Path, PreTrainedModel]) -> None:
    folder, model = tiny
    driver = Driver(torch_engine(folder, num_slots=4096))
    prompts = _prompts(6)
    expected = [_greedy(model, prompt, 8) for prompt in prompts]

    together = [driver.open(prompt) for prompt in prompts]
    driver.generate(together, 8)
    assert [row.output for row in together] == expected

    for source, prompt, ids in list(zip(together, prompts, expected, strict=True))[:3]:
        cached = driver.open(prompt, shared=source, reuse=len(prompt) - 1)
        chunked = driver.open(prompt)
        driver.step((cached, 1), (chunked, len(prompt) // 2))
        driver.step((cached, 1), (chunked, len(prompt) - len(prompt) // 2))  # decode beside prefill
        for _ in range(6):
            driver.step((cached, 1), (chunked, 1))
        driver.step((chunked, 1))
        assert cached.output == ids
        assert chunked.output == ids


def test_bfloat16_stays_near_the_float32_oracle(tiny: tuple[Path, PreTrainedModel]) -> None:
    folder, model = tiny
    prompt = _prompts(1, seed=5)[0]
    driver = Driver(torch_engine(folder, dtype=torch.bfloat16))
    row = driver.open(prompt, _LOGPROBS)
    result = driver.step((row, len(prompt)))
    expected = oracle_logits(model, prompt)[-1]
    spread = float(expected.std())
    difference = np.array(result.logprobs[row.row].ids) - torch.log_softmax(expected, -1).numpy()
    assert np.sqrt(np.mean(difference**2)) < 0.1 * spread
