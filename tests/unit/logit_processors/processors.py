"""Processors as an operator writes them, for the tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from services.scheduler.logit_processors.interface import FloatRow, IntArray, Processor

NOT_CALLABLE = 3


def echo(params: Mapping[str, Any], vocab_size: int) -> Processor:
    """Adds `bias` to the id that follows the last token, which is of the prompt until there is output."""
    bias = float(params["bias"])

    def process(logits: FloatRow, prompt_ids: IntArray, output_ids: IntArray) -> None:
        last = output_ids[-1] if output_ids.size else prompt_ids[-1]
        logits[(last + 1) % vocab_size] += np.float32(bias)

    return process


def breaks(params: Mapping[str, Any], vocab_size: int) -> Processor:
    """Raises at output position `at`, or writes `fill` everywhere from there on."""

    def process(logits: FloatRow, prompt_ids: IntArray, output_ids: IntArray) -> None:
        if output_ids.size >= params["at"]:
            if "fill" not in params:
                raise RuntimeError("a secret of the operator")
            logits[:] = float(params["fill"])

    return process


def writes_ids(params: Mapping[str, Any], vocab_size: int) -> Processor:
    """Tries to change the prompt."""

    def process(logits: FloatRow, prompt_ids: IntArray, output_ids: IntArray) -> None:
        prompt_ids[0] = 1

    return process
