"""What a checkpoint says about its model, as one value that the rest of the worker reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.scheduler.models.rope import RopeScaling, parse_scaling

SUPPORTED = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")


class ConfigError(ValueError):
    """A model description lacks a field or asks for something this engine does not compute."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Shape and constants of a decoder of the Llama family."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling
    max_position: int  # tokens; the model's own context length
    tie_word_embeddings: bool
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False  # RMS norm of each query and key head before the rotation
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    def kv_bytes_per_token(self, element_bytes: int) -> int:
        """Bytes of key and value of one token over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * element_bytes


def from_hf(raw: Mapping[str, Any], generation: Mapping[str, Any] | None = None) -> ModelConfig:
    """Build from the contents of `config.json` and, for end tokens, `generation_config.json`. Raises ConfigError."""
    architecture = _architecture(raw)
    hidden, heads = _integer(raw, "hidden_size"), _integer(raw, "num_attention_heads")
    max_position = _integer(raw, "max_position_embeddings")
    rope = raw.get("rope_parameters") or {}
    theta = rope.get("rope_theta", raw.get("rope_theta", 10000.0))
    try:
        scaling = parse_scaling(rope or raw.get("rope_scaling"), max_position)
    except KeyError as missing:
        raise ConfigError(f"config.json: rope scaling lacks {missing}") from None
    except ValueError as error:
        raise ConfigError(str(error)) from None
    attention_bias = bool(raw.get("attention_bias", False))
    config = ModelConfig(
        architecture=architecture,
        vocab_size=_integer(raw, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=_integer(raw, "intermediate_size"),
        num_layers=_integer(raw, "num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=int(raw.get("num_key_value_heads") or heads),
        head_dim=int(raw.get("head_dim") or hidden // heads),
        rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope_theta=float(theta),
        rope_scaling=scaling,
        max_position=_window(raw, max_position),
        tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=attention_bias or architecture == "Qwen2ForCausalLM",
        o_bias=attention_bias,
        mlp_bias=bool(raw.get("mlp_bias", False)),
        qk_norm=architecture == "Qwen3ForCausalLM",
        bos_token_id=raw.get("bos_token_id"),
        eos_token_ids=_ids((generation or {}).get("eos_token_id")) or _ids(raw.get("eos_token_id")),
    )
    return validated(config)


def validated(config: ModelConfig) -> ModelConfig:
    """Return `config` if its numbers fit together, else raise ConfigError naming the field."""
    for name in ("vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads"):
        if getattr(config, name) < 1:
            raise ConfigError(f"model configuration: {name} must be positive, not {getattr(config, name)}")
    if config.num_heads % config.num_kv_heads:
        raise ConfigError(f"model configuration: {config.num_heads} heads do not divide into {config.num_kv_heads} groups")
    if config.head_dim % 2:
        raise ConfigError(f"model configuration: head_dim must be even, not {config.head_dim}")
    factors = len(config.rope_scaling.factors)
    if factors and 2 * factors != config.head_dim:
        raise ConfigError(f"model configuration: {factors} rope factors, a head has {config.head_dim // 2} frequencies")
    return config


def _architecture(raw: Mapping[str, Any]) -> str:
    names = raw.get("architectures") or []
    for name in names:
        if name in SUPPORTED:
            activation = raw.get("hidden_act", "silu")
            if activation != "silu":
                raise ConfigError(f"config.json: hidden_act {activation!r} is not supported (silu is)")
            return str(name)
    raise ConfigError(f"config.json: architectures {list(names)} not supported; supported are {', '.join(SUPPORTED)}")


def _integer(raw: Mapping[str, Any], name: str) -> int:
    value = raw.get(name)
    if not isinstance(value, int):
        raise ConfigError(f"config.json: {name} is {'missing' if value is None else repr(value)}, an integer is needed")
    return value


def _window(raw: Mapping[str, Any], max_position: int) -> int:
    """Full attention equals a sliding window as long as the context fits into the window."""
    window = raw.get("sliding_window")
    if window and raw.get("use_sliding_window", True):
        return min(max_position, int(window))
    return max_position


def _ids(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(int(v) for v in value) if isinstance(value, list) else (int(value),)
