"""The matrix products of a model alone, by PyTorch's own operations: what a server adds to them is its own cost.

`python -m benchmarks.floor MODEL_DIR` prints one JSON object: for bf16 and int8, milliseconds of a decode step by batch
and of a prefill. In int8 the faster of two ways counts: weights alone in 8 bits, or weights and inputs. Every layer has
weights of its own, so that they come from memory as they do in a model.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

_BATCHES = (1, 8, 16, 32)
_PREFILL = 512
_REPEATS = 5

Product = Callable[[int], object]  # runs it for so many rows


def shapes(config: dict[str, int]) -> list[tuple[int, int]]:
    """(output, input) of each product of one layer."""
    hidden, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    head = config.get("head_dim") or hidden // heads
    kv = config.get("num_key_value_heads", heads) * head
    return [(heads * head, hidden), (kv, hidden), (kv, hidden), (hidden, heads * head), (inner, hidden), (inner, hidden), (hidden, inner)]


def measure(config: dict[str, int]) -> dict[str, dict[str, float]]:
    """Best of several repetitions, milliseconds."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    layers = [shape for _ in range(config["num_hidden_layers"]) for shape in shapes(config)]
    head = (config["vocab_size"], config["hidden_size"])
    ways = {"bf16": [_bf16], "int8": [_weights_in_int8, _all_in_int8]}
    with torch.inference_mode():
        return {kind: _least([_times([make(s) for s in layers], make(head), make) for make in makers]) for kind, makers in ways.items()}


def _least(each: list[dict[str, float]]) -> dict[str, float]:
    return {name: min(times[name] for times in each if name in times) for name in each[-1]}


def _times(layers: list[Product], head: Product, way: Callable[..., Product]) -> dict[str, float]:
    found = {f"decode_{batch}": _best(layers, head, batch, batch) for batch in _BATCHES}
    if way is not _weights_in_int8:  # made for few rows, and slow for many
        found["prefill"] = _best(layers, head, _PREFILL, 1)
    return found


def _best(layers: list[Product], head: Product, rows: int, logits: int) -> float:
    best = float("inf")
    for _ in range(_REPEATS):
        begin = time.perf_counter()
        for product in layers:
            product(rows)
        head(logits)
        best = min(best, time.perf_counter() - begin)
    return 1e3 * best


def _bf16(shape: tuple[int, int]) -> Product:
    inputs, weight = torch.randn(_PREFILL, shape[1], dtype=torch.bfloat16), torch.randn(shape, dtype=torch.bfloat16)
    return lambda rows: torch.nn.functional.linear(inputs[:rows], weight)


def _weights_in_int8(shape: tuple[int, int]) -> Product:
    inputs, weight = torch.randn(_PREFILL, shape[1], dtype=torch.bfloat16), _random_int8(shape)
    scales = torch.rand(shape[0], dtype=torch.bfloat16)
    return lambda rows: torch._weight_int8pack_mm(inputs[:rows], weight, scales)


def _all_in_int8(shape: tuple[int, int]) -> Product:
    inputs, weight = _random_int8((_PREFILL, shape[1])), _random_int8(shape).t()
    return lambda rows: torch._int_mm(inputs[:rows], weight)


_random_int8 = partial(torch.randint, -127, 127, dtype=torch.int8)


if __name__ == "__main__":
    print(json.dumps(measure(json.loads((Path(sys.argv[1]) / "config.json").read_text()))))
