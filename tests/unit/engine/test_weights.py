"""Checkpoint readers against the oracle's own loading, and what they say about broken files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, PreTrainedModel

from services.scheduler.models.config import ConfigError, from_hf
from services.scheduler.weights.digest import model_digest
from services.scheduler.weights.interface import WeightError
from services.scheduler.weights.loader import load_weights, open_checkpoint
from tests.unit.engine.models import save_tiny

_GGUF_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_GGUF_TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def _gguf_name(name: str) -> str:
    stem, kind = name.rsplit(".", 1)
    if stem in _GGUF_TOP:
        return f"{_GGUF_TOP[stem]}.{kind}"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{_GGUF_LAYER[rest]}.{kind}"


def _interleave(weight: np.ndarray, heads: int) -> np.ndarray:
    """What converters to GGUF do to query and key rows of llama models."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def _write_gguf(model: PreTrainedModel, path: Path, kind: GGMLQuantizationType) -> None:
    config = model.config
    writer = GGUFWriter(str(path), "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)
    writer.add_eos_token_id(2)
    writer.add_eot_token_id(5)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"t{i}" for i in range(config.vocab_size)])
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = tensor.numpy()
        if "q_proj" in name:
            values = _interleave(values, config.num_attention_heads)
        if "k_proj" in name:
            values = _interleave(values, config.num_key_value_heads)
        quantized = kind if values.ndim == 2 else GGMLQuantizationType.F32
        writer.add_tensor(_gguf_name(name), quantize(np.ascontiguousarray(values), quantized), raw_dtype=quantized)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PreTrainedModel]:
    folder = tmp_path_factory.mktemp("llama")
    return folder, save_tiny("llama", folder)


def _assert_equal(weights: dict[str, torch.Tensor], model: PreTrainedModel) -> None:
    state = model.state_dict()
    for name, tensor in weights.items():
        torch.testing.assert_close(tensor, state[name].to(torch.float32), rtol=0, atol=0)


def test_a_folder_loads_what_the_oracle_has(llama: tuple[Path, PreTrainedModel]) -> None:
    folder, model = llama
    _assert_equal(load_weights(open_checkpoint(folder), torch.float32), model)


def test_a_sharded_folder_is_one_checkpoint(tmp_path: Path) -> None:
    model = save_tiny("llama", tmp_path, shard_size="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    _assert_equal(load_weights(open_checkpoint(tmp_path), torch.float32), model)
    next(tmp_path.glob("*-00002-*.safetensors")).unlink()
    with pytest.raises(WeightError, match="00002"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("kind", [GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.Q8_0])
def test_a_gguf_file_loads_what_the_oracles_loader_makes_of_it(
    llama: tuple[Path, PreTrainedModel], tmp_path: Path, kind: GGMLQuantizationType
) -> None:
    path = tmp_path / "tiny.gguf"
    _write_gguf(llama[1], path, kind)
    oracle = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name, dtype=torch.float32)
    checkpoint = open_checkpoint(path)
    _assert_equal(load_weights(checkpoint, torch.float32), oracle)
    assert checkpoint.config.eos_token_ids == (2, 5)
    assert checkpoint.config.rope_theta == oracle.config.rope_parameters["rope_theta"]


def test_missing_unknown_and_misshapen_tensors_are_named(llama: tuple[Path, PreTrainedModel], tmp_path: Path) -> None:
    folder, _ = llama
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    tensors = load_file(str(folder / "model.safetensors"))

    def loaded(changed: dict[str, torch.Tensor]) -> None:
        save_file(changed, str(tmp_path / "model.safetensors"))
        load_weights(open_checkpoint(tmp_path), torch.float32)

    norm = "model.layers.1.input_layernorm.weight"
    with pytest.raises(WeightError, match=f"missing.*{norm}"):
        loaded({name: tensor for name, tensor in tensors.items() if name != norm})
    with pytest.raises(WeightError, match=r"not part of the model.*model\.extra"):
        loaded(tensors | {"model.extra": torch.zeros(1)})
    with pytest.raises(WeightError, match=rf"{norm} \(3,\), not \(64,\)"):
        loaded(tensors | {norm: torch.zeros(3)})
    loaded(tensors | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(8)})


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "not a safetensors"), (b"\xff" * 64, "cut short"), (b"\x10" + b"\0" * 7 + b"x" * 30, "not a safetensors")],
)
def test_a_damaged_file_is_refused_by_name(llama: tuple[Path, PreTrainedModel], tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "config.json").write_text((llama[0] / "config.json").read_text())
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(WeightError, match=rf"model\.safetensors.*{message}"):
        open_checkpoint(tmp_path)


def test_a_truncated_file_is_refused(llama: tuple[Path, PreTrainedModel], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((llama[0] / "config.json").read_text())
    (tmp_path / "model.safetensors").write_bytes((llama[0] / "model.safetensors").read_bytes()[:-1000])
    with pytest.raises(WeightError, match="cut short"):
        open_checkpoint(tmp_path)


def test_unreadable_paths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightError, match="no such file"):
        open_checkpoint(tmp_path / "absent")
    with pytest.raises(WeightError, match=r"no config\.json"):
        open_checkpoint(tmp_path)
    (tmp_path / "x.gguf").write_bytes(b"nonsense" * 9)
    with pytest.raises(WeightError, match="GGUF"):
        open_checkpoint(tmp_path / "x.gguf")


def test_dummy_weights_follow_the_configuration(llama: tuple[Path, PreTrainedModel]) -> None:
    checkpoint = open_checkpoint(llama[0], "dummy")
    weights = load_weights(checkpoint, torch.bfloat16)
    again = load_weights(open_checkpoint(llama[0], "dummy"), torch.bfloat16)
    assert all(torch.equal(tensor, again[name]) for name, tensor in weights.items())
    assert weights["model.embed_tokens.weight"].shape == (300, 64)


def test_the_digest_follows_weights_and_configuration(llama: tuple[Path, PreTrainedModel], tmp_path: Path) -> None:
    folder, model = llama
    first = model_digest(open_checkpoint(folder))
    assert first == model_digest(open_checkpoint(folder))
    with torch.no_grad():
        norm = model.state_dict()["model.layers.0.input_layernorm.weight"]
        norm[0] += 1.0
        model.save_pretrained(tmp_path)
        norm[0] -= 1.0
    assert model_digest(open_checkpoint(tmp_path)) != first
    assert model_digest(open_checkpoint(folder, "dummy")) != first


_VALID: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 10,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"vocab_size": "many"}, "vocab_size is 'many'"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"num_key_value_heads": 3}, "do not divide"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2}}, "'yarn' is not supported"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 2}}, "lacks"),
        ({"rope_scaling": {"rope_type": "factors"}}, "lacks 'factors'"),
        ({"rope_scaling": {"rope_type": "factors", "factors": [1.0, 2.0, 3.0]}}, "3 rope factors, a head has 2"),
        ({"num_hidden_layers": 0}, "num_layers must be positive"),
    ],
)
def test_configurations_that_cannot_be_served_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_hf(_VALID | change)


def test_context_is_held_to_the_sliding_window() -> None:
    assert from_hf(_VALID | {"sliding_window": 16}).max_position == 16
    assert from_hf(_VALID | {"sliding_window": 16, "use_sliding_window": False}).max_position == 64


def test_end_tokens_come_from_the_generation_config_first() -> None:
    raw = json.loads(json.dumps(_VALID | {"eos_token_id": 2}))
    assert from_hf(raw).eos_token_ids == (2,)
    assert from_hf(raw, {"eos_token_id": [2, 7]}).eos_token_ids == (2, 7)
