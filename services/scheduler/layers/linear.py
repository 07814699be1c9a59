"""Matrix products with weights that were joined when the model was built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F


class Linear:
    """`x @ weight.T + bias`; several checkpoint tensors with the same input are stacked into one product."""

    def __init__(self, weights: Mapping[str, torch.Tensor], *names: str) -> None:
        """`names` are tensor names without `.weight`; a bias is used where the checkpoint has one."""
        self.weight = _stack([weights[f"{name}.weight"] for name in names])
        biases = [weights[f"{name}.bias"] for name in names if f"{name}.bias" in weights]
        self.bias = _stack(biases) if biases else None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[T, in] → [T, out] in the dtype of the weight."""
        return F.linear(x, self.weight, self.bias)


def _stack(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors))
