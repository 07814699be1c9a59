"""Measures what int8 costs a model in quality, against float32 on the same text, and stores the figures.

The text is the language reference that every Python interpreter brings along: prose, lists and code.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import torch
from tokenizers import Tokenizer

from services.common.config import cpu_isa
from services.scheduler.core.plan import IntArray
from services.scheduler.engine.forward_batch import ForwardBatch
from services.scheduler.engine.native_runner import NativeRunner
from services.scheduler.engine.precision import LEAST_TOKENS, judge
from services.scheduler.kernels import dispatch
from services.scheduler.weights.digest import model_digest
from services.scheduler.weights.interface import Checkpoint, WeightError
from services.scheduler.weights.loader import load_weights, open_checkpoint

_WINDOW = 512  # tokens seen at once; each window begins anew
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Figures:
    """int8 against float32: ratio of perplexities, share of equal first choices, mean divergence in nats."""

    perplexity_ratio: float
    top1_agreement: float
    mean_kl: float
    tokens: int

    @property
    def verdict(self) -> tuple[bool, str]:
        """Whether the bounds hold, and in what words to say so."""
        return judge(self.perplexity_ratio, self.top1_agreement, self.mean_kl, self.tokens)


def check_quality(folder: Path, cache_dir: Path, threads: int, say: Say) -> Figures:
    """Measure the model in `folder` and store the figures, which `--quantization auto` goes by from then on.

    Raises WeightError, KernelsUnavailable or UnsupportedShape.
    """
    dispatch.load(cache_dir, say)
    checkpoint = open_checkpoint(folder)
    ids = _text_ids(folder, LEAST_TOKENS + _WINDOW)
    figures = measure(checkpoint, ids, threads, say)
    store = cache_dir / "quality"
    store.mkdir(parents=True, exist_ok=True)
    (store / f"{model_digest(checkpoint)}.json").write_text(json.dumps(asdict(figures), indent=1) + "\n")
    return figures


def measure(checkpoint: Checkpoint, ids: IntArray, threads: int, say: Say) -> Figures:
    """Run `ids` in windows through both precisions. The last token of a window is predicted, not fed further."""
    reference = _runner(checkpoint, "none", torch.float32, threads)
    quantized = _runner(checkpoint, "int8", torch.bfloat16, threads)
    table = torch.from_numpy(np.arange(2 * (_WINDOW + 1), dtype=np.int32).reshape(2, _WINDOW + 1) - _WINDOW)
    loss = np.zeros(2)
    agreements = divergence = 0.0
    count = 0
    windows = [ids[start : start + _WINDOW + 1] for start in range(0, ids.size - 1, _WINDOW)]
    for done, window in enumerate(windows, 1):
        batch = _whole(window[:-1])
        wanted = torch.from_numpy(window[1:].astype(np.int64))[:, None]
        exact = torch.log_softmax(reference.forward(batch, table), -1)
        rough = torch.log_softmax(quantized.forward(batch, table), -1)
        loss -= [float(exact.gather(1, wanted).sum(dtype=torch.float64)), float(rough.gather(1, wanted).sum(dtype=torch.float64))]
        agreements += int((exact.argmax(-1) == rough.argmax(-1)).sum())
        divergence += float((exact.exp() * (exact - rough)).sum(dtype=torch.float64))
        count += window.size - 1
        if done % max(1, len(windows) // 10) == 0:
            say(f"checking int8: {100 * done // len(windows)} %")
    reference.close()
    quantized.close()
    return Figures(math.exp((loss[1] - loss[0]) / count), agreements / count, divergence / count, count)


def _runner(checkpoint: Checkpoint, quantization: str, dtype: torch.dtype, threads: int) -> NativeRunner:
    return NativeRunner(
        checkpoint.config,
        load_weights(checkpoint, dtype),
        dtype=dtype,
        quantization=quantization,
        num_threads=threads,
        num_slots=_WINDOW + 1,
        context_length=_WINDOW + 1,
        isa=cpu_isa(),
    )


def _whole(ids: IntArray) -> ForwardBatch:
    """One sequence from its beginning, logits for every token; row 1 of the table holds slots 1, 2, …"""
    positions = np.arange(ids.size, dtype=np.int32)
    length = np.array([ids.size], np.int32)
    return ForwardBatch(ids.astype(np.int32), positions, positions + 1, np.array([1], np.int32), length, length, positions)


def _text_ids(folder: Path, count: int) -> IntArray:
    """The first `count` tokens of the text."""
    file = folder / "tokenizer.json"
    if not file.exists():
        raise WeightError(f"{folder}: the quality check needs a tokenizer.json")
    tokenizer = Tokenizer.from_file(str(file))
    found: list[int] = []
    for text in _texts():
        found += tokenizer.encode(text, add_special_tokens=False).ids
        if len(found) >= count:
            return np.array(found[:count], np.int32)
    raise WeightError(f"the text has {len(found)} tokens only, {count} are needed")


def _texts() -> Iterator[str]:
    for name in sorted(topics):
        yield topics[name]
