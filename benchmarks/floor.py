"""The matrix products of a model alone, in bfloat16 with PyTorch: no server can be faster on these operations.

`python -m benchmarks.floor MODEL_DIR` prints one JSON object: milliseconds of a decode step by batch, and of a prefill.
Every layer has weights of its own, so that they come from memory as they do in a model.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch

_BATCHES = (1, 8, 32)
_PREFILL = 512
_REPEATS = 7


def shapes(config: dict[str, int]) -> list[tuple[int, int]]:
    """(output, input) of each product of one layer."""
    hidden, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    head = config.get("head_dim") or hidden // heads
    kv = config.get("num_key_value_heads", heads) * head
    return [(heads * head, hidden), (kv, hidden), (kv, hidden), (hidden, heads * head), (inner, hidden), (inner, hidden), (hidden, inner)]


def measure(config: dict[str, int]) -> dict[str, float]:
    """Best of several repetitions, milliseconds."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    layers = [torch.randn(shape, dtype=torch.bfloat16) for _ in range(config["num_hidden_layers"]) for shape in shapes(config)]
    head = torch.randn(config["vocab_size"], config["hidden_size"], dtype=torch.bfloat16)
    found = {f"decode_{batch}": _best(layers, head, batch, batch) for batch in _BATCHES}
    found["prefill"] = _best(layers, head, _PREFILL, 1)
    return found


def _best(layers: list[torch.Tensor], head: torch.Tensor, rows: int, logits: int) -> float:
    inputs = {width: torch.randn(rows, width, dtype=torch.bfloat16) for width in {w.shape[1] for w in layers}}
    last = torch.randn(logits, head.shape[1], dtype=torch.bfloat16)
    best = float("inf")
    with torch.inference_mode():
        for _ in range(_REPEATS):
            begin = time.perf_counter()
            for weight in layers:
                torch.nn.functional.linear(inputs[weight.shape[1]], weight)
            torch.nn.functional.linear(last, head)
            best = min(best, time.perf_counter() - begin)
    return 1e3 * best


if __name__ == "__main__":
    print(json.dumps(measure(json.loads((Path(sys.argv[1]) / "config.json").read_text()))))
