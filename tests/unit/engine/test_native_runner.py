"""The engine on native kernels: the oracle's text, and the same bits whatever the batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from services.scheduler.core.plan import SamplingSpec
from services.scheduler.engine.native_runner import decoder_spec
from services.scheduler.engine.torch_engine import TorchEngine
from services.scheduler.kernels.errors import UnsupportedShape
from services.scheduler.weights.loader import open_checkpoint
from tests.unit.engine.driver import Driver, native_engine
from tests.unit.engine.models import oracle_logits, save_tiny

_ALL_IDS = SamplingSpec(temperature=0.0, logprobs=True, logprob_ids=tuple(range(300)))
_NATIVE_KINDS = ["llama", "llama3-rope", "linear-rope", "qwen2", "qwen3"]
_WIDE_ENOUGH = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}  # the kernels' least head


def _engine(folder: Path, dtype: torch.dtype = torch.float32, quantization: str = "none") -> TorchEngine:
    return native_engine(folder, 2048, dtype=dtype, quantization=quantization, num_threads=2)


@pytest.fixture(scope="module", params=_NATIVE_KINDS)
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, torch.nn.Module]:
    folder = tmp_path_factory.mktemp(request.param)
    return folder, save_tiny(request.param, folder, changes=_WIDE_ENOUGH)


def _prompt(length: int, seed: int) -> list[int]:
    ids: list[int] = np.random.default_rng(seed).integers(3, 300, length).tolist()
    return ids


# Root mean square distance from the float32 reference's log-probabilities, as a share of their standard deviation.
_TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.1}


@pytest.mark.parametrize("dtype", list(_TOLERANCE))
def test_logprobs_follow_the_float32_oracle(tiny: tuple[Path, torch.nn.Module], dtype: torch.dtype) -> None:
    folder, model = tiny
    driver = Driver(_engine(folder, dtype))
    prompt = _prompt(50, seed=1)
    row = driver.open(prompt, _ALL_IDS)
    row.prompt_logprobs_from = 1
    result = driver.step((row, 50))
    expected = torch.log_softmax(oracle_logits(model, prompt), -1).numpy()  # type: ignore[arg-type]
    found = np.array([entry.ids for entry in result.prompt_logprobs[row.row]] + [result.logprobs[row.row].ids])
    distance = np.sqrt(np.mean((found - expected) ** 2)) / expected.std()
    assert distance <= _TOLERANCE[dtype]


@pytest.mark.parametrize(("dtype", "quantization"), [(torch.float32, "none"), (torch.bfloat16, "none"), (torch.bfloat16, "int8")])
def test_bits_do_not_depend_on_batch_chunks_or_cache(tiny: tuple[Path, torch.nn.Module], dtype: torch.dtype, quantization: str) -> None:
    folder, _ = tiny
    driver = Driver(_engine(folder, dtype, quantization))
    prompt = _prompt(90, seed=2)
    alone = driver.open(prompt, _ALL_IDS)
    first = [driver.step((alone, 90)).logprobs[alone.row], driver.step((alone, 1)).logprobs[alone.row]]

    others = [driver.open(_prompt(5 + 20 * i, seed=i)) for i in range(3)]
    driver.step(*((row, len(row.ids)) for row in others))
    chunked, cached = driver.open(prompt, _ALL_IDS), driver.open(prompt, _ALL_IDS, shared=alone, reuse=70)
    driver.step((others[0], 1), (chunked, 37), (others[1], 1))
    second = driver.step((chunked, 53), (others[2], 1), (cached, 20))
    third = driver.step((cached, 1), (others[0], 1), (chunked, 1))
    for row in (chunked, cached):
        assert [second.logprobs[row.row], third.logprobs[row.row]] == first


def test_biases_the_kernels_lack_are_refused_by_name(tmp_path: Path) -> None:
    save_tiny("llama-untied-bias", tmp_path)
    with pytest.raises(UnsupportedShape, match="biases"):
        decoder_spec(open_checkpoint(tmp_path).config, 64)
