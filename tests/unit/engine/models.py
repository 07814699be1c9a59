"""Tiny random models saved as Hugging Face folders, and their `transformers` twins as oracle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

_SHAPE: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
    "rope_theta": 10000.0,
}
_LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}


@dataclass(frozen=True, slots=True)
class Kind:
    """One architecture and the settings that make it differ."""

    config: type[Any]
    model: type[Any]
    changes: dict[str, Any]


KINDS = {
    "llama": Kind(LlamaConfig, LlamaForCausalLM, {"tie_word_embeddings": True}),
    "llama-untied-bias": Kind(LlamaConfig, LlamaForCausalLM, {"tie_word_embeddings": False, "attention_bias": True, "mlp_bias": True}),
    "llama3-rope": Kind(LlamaConfig, LlamaForCausalLM, {"rope_parameters": _LLAMA3}),
    "linear-rope": Kind(LlamaConfig, LlamaForCausalLM, {"rope_parameters": _LINEAR}),
    "llama-head-dim": Kind(LlamaConfig, LlamaForCausalLM, {"head_dim": 24, "num_key_value_heads": 4}),
    "mistral": Kind(MistralConfig, MistralForCausalLM, {"sliding_window": None, "num_key_value_heads": 1}),
    "qwen2": Kind(Qwen2Config, Qwen2ForCausalLM, {}),
    "qwen3": Kind(Qwen3Config, Qwen3ForCausalLM, {"head_dim": 32}),
}


def save_tiny(kind: str, folder: Path, shard_size: str = "5GB", changes: dict[str, Any] | None = None) -> PreTrainedModel:
    """Create the model of `kind` with fixed random weights, save it to `folder` and return the oracle."""
    torch.manual_seed(7)
    entry = KINDS[kind]
    model: PreTrainedModel = entry.model(entry.config(**(_SHAPE | entry.changes | (changes or {})))).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("norm.weight", "bias")):
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder, max_shard_size=shard_size)
    return model


@torch.no_grad()
def oracle_logits(model: PreTrainedModel, ids: list[int]) -> torch.Tensor:
    """Float32 [len(ids), vocab]."""
    logits: torch.Tensor = model(torch.tensor([ids])).logits[0]
    return logits
