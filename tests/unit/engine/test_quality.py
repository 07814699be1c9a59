"""The measurement of what int8 costs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from services.common.config import cache_dir
from services.scheduler.engine.quality import measure
from services.scheduler.kernels import dispatch
from services.scheduler.weights.loader import open_checkpoint
from tests.unit.engine.models import save_tiny


def test_figures_are_small_for_a_model_that_hardly_suffers(tmp_path: Path) -> None:
    dispatch.load(cache_dir())
    save_tiny("llama", tmp_path, changes={"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32})
    ids = np.random.default_rng(0).integers(3, 300, 700).astype(np.int32)
    lines: list[str] = []
    figures = measure(open_checkpoint(tmp_path), ids, 2, lines.append)
    assert figures.tokens == 699
    assert figures.perplexity_ratio == pytest.approx(1.0, abs=0.1)
    assert 0.8 < figures.top1_agreement <= 1.0
    assert 0.0 < figures.mean_kl < 0.1
    assert lines[-1] == "checking int8: 100 %"
    assert figures.verdict[0] is False  # too few tokens to say
