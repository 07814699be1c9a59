"""A GGUF file: configuration from its metadata, tensors dequantized and given their Hugging Face names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader, ReaderTensor
from gguf.quants import dequantize

from services.scheduler.models.config import ConfigError, ModelConfig, validated
from services.scheduler.models.rope import RopeScaling
from services.scheduler.weights.interface import WeightError

_ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_ROPE_FACTORS = "rope_freqs.weight"


class GgufFile:
    """Maps the file into memory; a tensor is dequantized to float32 when it is read."""

    def __init__(self, path: Path) -> None:
        try:
            self._reader = GGUFReader(str(path))
        except (ValueError, OSError, IndexError) as error:
            raise WeightError(f"{path}: not a readable GGUF file: {error}") from error
        self._path = path
        stored = {tensor.name: tensor for tensor in self._reader.tensors}
        factors = stored.pop(_ROPE_FACTORS, None)
        self._tensors = {_hf_name(path, name): tensor for name, tensor in stored.items()}
        self._permuted = self._field("general.architecture") == "llama"
        self.config: ModelConfig = self._read_config(factors)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._tensors))

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(int(size) for size in reversed(self._tensors[name].shape.tolist()))

    def sample(self, name: str) -> bytes:
        tensor = self._tensors[name]
        raw = tensor.data.reshape(-1).view(np.uint8)
        middle = raw.size // 2
        parts = (raw[:64], raw[middle : middle + 64], raw[-64:])
        return f"{tensor.tensor_type.name}:".encode() + b"".join(part.tobytes() for part in parts)

    def read(self, name: str) -> torch.Tensor:
        tensor = self._tensors[name]
        values = np.require(dequantize(tensor.data, tensor.tensor_type), np.float32, ["C", "W"])
        weight = torch.from_numpy(values).reshape(self.shape(name))
        if self._permuted and name.endswith(("q_proj.weight", "q_proj.bias")):
            return _unpermute(weight, self.config.num_heads)
        if self._permuted and name.endswith(("k_proj.weight", "k_proj.bias")):
            return _unpermute(weight, self.config.num_kv_heads)
        return weight

    def _read_config(self, factors: ReaderTensor | None) -> ModelConfig:
        arch = str(self._field("general.architecture"))
        if arch not in _ARCHITECTURES:
            raise WeightError(f"{self._path}: architecture {arch!r} not supported; supported are {', '.join(_ARCHITECTURES)}")
        heads, hidden = int(self._need(f"{arch}.attention.head_count")), int(self._need(f"{arch}.embedding_length"))
        if "model.embed_tokens.weight" not in self._tensors:
            raise WeightError(f"{self._path}: no tensor token_embd.weight")
        try:
            return validated(
                ModelConfig(
                    architecture=_ARCHITECTURES[arch],
                    vocab_size=self.shape("model.embed_tokens.weight")[0],
                    hidden_size=hidden,
                    intermediate_size=int(self._need(f"{arch}.feed_forward_length")),
                    num_layers=int(self._need(f"{arch}.block_count")),
                    num_heads=heads,
                    num_kv_heads=int(self._field(f"{arch}.attention.head_count_kv", heads)),
                    head_dim=int(self._field(f"{arch}.attention.key_length", hidden // heads)),
                    rms_norm_eps=float(self._need(f"{arch}.attention.layer_norm_rms_epsilon")),
                    rope_theta=float(self._field(f"{arch}.rope.freq_base", 10000.0)),
                    rope_scaling=self._rope_scaling(arch, factors),
                    max_position=int(self._need(f"{arch}.context_length")),
                    tie_word_embeddings="lm_head.weight" not in self._tensors,
                    qkv_bias="model.layers.0.self_attn.q_proj.bias" in self._tensors,
                    o_bias="model.layers.0.self_attn.o_proj.bias" in self._tensors,
                    mlp_bias="model.layers.0.mlp.up_proj.bias" in self._tensors,
                    qk_norm="model.layers.0.self_attn.q_norm.weight" in self._tensors,
                    bos_token_id=self._field("tokenizer.ggml.bos_token_id"),
                    eos_token_ids=self._eos_ids(),
                )
            )
        except ConfigError as error:
            raise WeightError(f"{self._path}: {error}") from error

    def _rope_scaling(self, arch: str, factors: ReaderTensor | None) -> RopeScaling:
        if factors is not None:
            return RopeScaling("factors", factors=tuple(float(v) for v in np.asarray(factors.data, dtype=np.float32)))
        kind = str(self._field(f"{arch}.rope.scaling.type", "none"))
        if kind == "none":
            return RopeScaling()
        if kind == "linear":
            return RopeScaling("linear", factor=float(self._need(f"{arch}.rope.scaling.factor")))
        raise WeightError(f"{self._path}: rope scaling {kind!r} is not supported (none and linear are)")

    def _eos_ids(self) -> tuple[int, ...]:
        """The end of text and, where the file names one, the end of a turn."""
        found = (self._field(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot"))
        return tuple(dict.fromkeys(int(value) for value in found if value is not None))

    def _field(self, key: str, default: Any = None) -> Any:
        field = self._reader.get_field(key)
        return default if field is None else field.contents()

    def _need(self, key: str) -> Any:
        value = self._field(key)
        if value is None:
            raise WeightError(f"{self._path}: metadata lacks {key}")
        return value


def _hf_name(path: Path, name: str) -> str:
    parts = name.split(".")
    if len(parts) == 2 and parts[0] in _TOP:
        return f"{_TOP[parts[0]]}.{parts[1]}"
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in _LAYER:
        return f"model.layers.{parts[1]}.{_LAYER[parts[2]]}.{parts[3]}"
    raise WeightError(f"{path}: tensor {name} belongs to no part of a supported model")


def _unpermute(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Undo the interleaving of rotary pairs that llama-architecture files store: back to first half, second half."""
    half = weight.shape[0] // heads // 2
    return weight.reshape(heads, half, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape).contiguous()
