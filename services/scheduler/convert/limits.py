"""Bounds a request is checked against at the worker's door."""

from __future__ import annotations

from dataclasses import dataclass

MAX_TOP_LOGPROBS = 256
MAX_LOGPROB_IDS = 1024
MAX_CHOICES = 256
MAX_LOGIT_BIASES = 1024
MAX_STOP_IDS = 1024


@dataclass(frozen=True, slots=True)
class RequestBounds:
    """What this worker serves."""

    model_names: frozenset[str]  # what a request may call the model; the empty name always fits
    vocab_size: int
    context_tokens: int
    weight_version: str
