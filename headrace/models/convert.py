"""A GGUF file becomes a Hugging Face folder: bf16 safetensors, config.json, tokenizer. Run in a process of its own.

`python -m headrace.models.convert GGUF FOLDER` prints one progress line per tenth; errors go to stderr, exit code 1.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader
from safetensors.torch import save_file

from headrace.models.errors import ModelError
from headrace.models.progress import Meter
from headrace.models.tokenizer import write_tokenizer
from services.scheduler.models.config import ModelConfig
from services.scheduler.weights.gguf_file import GgufFile
from services.scheduler.weights.interface import WeightError


class GgufMetadata:
    """Key-value part of an open GGUF file, as Python values."""

    def __init__(self, reader: GGUFReader) -> None:
        self._reader = reader

    def get(self, key: str, default: Any = None) -> Any:
        field = self._reader.get_field(key)
        return default if field is None else field.contents()


def convert(gguf: Path, folder: Path) -> None:
    """Write the folder's files. Raises ModelError or WeightError naming what is not supported."""
    checkpoint = GgufFile(gguf)
    meta = GgufMetadata(GGUFReader(str(gguf)))
    write_tokenizer(meta, folder)
    (folder / "config.json").write_text(json.dumps(hf_config(checkpoint.config, meta), indent=1))
    (folder / "generation_config.json").write_text(json.dumps(_generation(checkpoint.config), indent=1))
    meter = Meter(lambda line: print(line, flush=True), "convert weights to bfloat16", "tensors")
    tensors: dict[str, torch.Tensor] = {}
    for done, name in enumerate(checkpoint.names(), 1):
        tensors[name] = checkpoint.read(name).to(torch.bfloat16).contiguous()
        meter.at(done, len(checkpoint.names()))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def hf_config(config: ModelConfig, meta: GgufMetadata) -> dict[str, Any]:
    """The model in the spelling of Hugging Face's config.json."""
    kind = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}[config.architecture]
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rope_theta}
    scaling = config.rope_scaling
    if scaling.kind == "factors":
        rope |= {"rope_type": "factors", "factors": list(scaling.factors)}
    elif scaling.kind == "linear":
        rope |= {"rope_type": "linear", "factor": scaling.factor}
    return {
        "architectures": [config.architecture],
        "model_type": kind,
        "dtype": "bfloat16",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "rope_parameters": rope,
        "max_position_embeddings": config.max_position,
        "tie_word_embeddings": config.tie_word_embeddings,
        "attention_bias": config.o_bias,
        "mlp_bias": config.mlp_bias,
        "_name_or_path": str(meta.get("general.name", "")),
        **_generation(config),
    }


def _generation(config: ModelConfig) -> dict[str, Any]:
    ends = list(config.eos_token_ids)
    return {"bos_token_id": config.bos_token_id, "eos_token_id": ends[0] if len(ends) == 1 else ends}


def main(argv: list[str]) -> int:
    """Entry point of the conversion process."""
    gguf, folder = map(Path, argv)
    try:
        convert(gguf, folder)
    except (ModelError, WeightError) as error:
        print(f"{gguf.name}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
