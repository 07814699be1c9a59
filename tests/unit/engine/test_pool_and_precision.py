"""What a worker decides at start: size of the pool, number of rows, precision."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from services.common.config import ConfigError
from services.scheduler.config import SchedulerConfig
from services.scheduler.engine.pool_size import max_running, size_pool
from services.scheduler.engine.precision import PrecisionError, choose, judge

GIB = 1 << 30


@dataclass
class _Memory:
    available: int
    total: int = 64 * GIB

    def available_bytes(self) -> int:
        return self.available

    def total_bytes(self) -> int:
        return self.total

    def spare_bytes(self) -> int:
        return self.available


@pytest.mark.parametrize(
    ("available", "context", "tokens", "reason"),
    [
        (8 * GIB, 8192, 2 * GIB // 23040, "25 % of available memory"),
        (40 * GIB, 8192, 4 * GIB // 23040, "4 GiB"),
        (40 * GIB, 1024, 65536, "64 full contexts"),
    ],
)
def test_the_default_pool_is_the_least_of_three_bounds(available: int, context: int, tokens: int, reason: str) -> None:
    found = size_pool(SchedulerConfig(), _Memory(available), available, 23040, context)
    assert (found.tokens, found.reason) == (tokens, reason)


def test_an_explicit_number_of_tokens_is_taken_as_it_is() -> None:
    config = SchedulerConfig(max_total_tokens=4096)
    assert size_pool(config, _Memory(8 * GIB), 8 * GIB, 23040, 8192).tokens == 4096
    assert size_pool(SchedulerConfig(max_total_tokens=100, page_size=16), _Memory(8 * GIB), 8 * GIB, 100, 64).tokens == 96


def test_a_fraction_counts_what_weights_took_and_what_is_there() -> None:
    config = SchedulerConfig(mem_fraction_static=0.5)
    assert size_pool(config, _Memory(30 * GIB, 40 * GIB), 36 * GIB, GIB, 64).tokens == 14  # 0.5 x 40 - 6, below 0.5 x 30
    assert size_pool(config, _Memory(10 * GIB, 40 * GIB), 12 * GIB, GIB, 64).tokens == 5  # 0.5 x 10, below 0.5 x 40 - 2


def test_a_pool_that_cannot_be_is_refused_with_the_numbers() -> None:
    with pytest.raises(ConfigError, match="no room"):
        size_pool(SchedulerConfig(), _Memory(1000), 1000, 23040, 8192)
    with pytest.raises(ConfigError, match=r"2048 MiB.*1024 MiB"):
        size_pool(SchedulerConfig(max_total_tokens=2), _Memory(GIB), GIB, GIB, 64)


def test_rows_follow_pool_and_context() -> None:
    assert max_running(None, 186_413, 8192) == 4096
    assert max_running(None, 40_000, 16384) == 2048
    assert max_running(None, 1000, 512) == 500
    assert max_running(7, 1000, 512) == 7


def _choose(
    dtype: str = "auto", quantization: str = "auto", native: bool = True, digest: str = "d", cache: Path = Path("/nowhere")
) -> tuple[torch.dtype, str]:
    chosen = choose(dtype, quantization, native=native, digest=digest, cache_dir=cache)
    return chosen.dtype, chosen.quantization


def test_automatic_precision_follows_path_and_stored_check(tmp_path: Path) -> None:
    assert _choose() == (torch.bfloat16, "none")
    assert _choose(native=False) == (torch.float32, "none")
    assert _choose(dtype="float32") == (torch.float32, "none")
    figures = {"perplexity_ratio": 1.004, "top1_agreement": 0.98, "mean_kl": 0.01, "tokens": 20_000}
    (tmp_path / "quality").mkdir()
    stored = tmp_path / "quality" / "d.json"
    stored.write_text(json.dumps(figures))
    assert _choose(cache=tmp_path) == (torch.bfloat16, "int8")
    assert _choose(cache=tmp_path, dtype="float32") == (torch.float32, "none")
    assert _choose(cache=tmp_path, quantization="none") == (torch.bfloat16, "none")
    assert _choose(cache=tmp_path, digest="other") == (torch.bfloat16, "none")
    stored.write_text(json.dumps(figures | {"mean_kl": 0.03}))
    assert _choose(cache=tmp_path) == (torch.bfloat16, "none")
    stored.write_text("{")
    assert "cannot be read" in choose("auto", "auto", native=True, digest="d", cache_dir=tmp_path).reason


def test_impossible_precisions_are_refused() -> None:
    with pytest.raises(PrecisionError, match="native"):
        _choose(quantization="int8", native=False)
    with pytest.raises(PrecisionError, match="float32"):
        _choose(quantization="int8", dtype="float32")


@pytest.mark.parametrize(
    ("figures", "good"),
    [
        ((1.01, 0.97, 0.02, 20_000), True),
        ((1.011, 0.99, 0.0, 30_000), False),
        ((1.0, 0.969, 0.0, 30_000), False),
        ((1.0, 1.0, 0.0, 19_999), False),
    ],
)
def test_the_quality_bounds(figures: tuple[float, float, float, int], good: bool) -> None:
    assert judge(*figures)[0] is good
