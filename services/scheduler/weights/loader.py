"""Choose a checkpoint reader by what the path holds, check that nothing is missing or left over, load tensors."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from services.scheduler.models.config import ConfigError, from_hf
from services.scheduler.weights.dummy import DummyCheckpoint
from services.scheduler.weights.gguf_file import GgufFile
from services.scheduler.weights.interface import Checkpoint, WeightError
from services.scheduler.weights.names import LM_HEAD, expected_shapes
from services.scheduler.weights.safetensors_folder import SafetensorsFolder

LOAD_FORMATS = ("auto", "safetensors", "gguf", "dummy")
_IGNORED_SUFFIXES = (".rotary_emb.inv_freq",)  # derived values that old checkpoints carry
_NAMED_AT_MOST = 8


def open_checkpoint(path: Path, load_format: str = "auto") -> Checkpoint:
    """Open a folder or file without reading tensors. Raises WeightError with the path and what is wrong."""
    if not path.exists():
        raise WeightError(f"{path}: no such file or folder")
    if load_format == "dummy":
        return _dummy(path)
    if load_format == "gguf" or (load_format == "auto" and path.is_file()):
        return GgufFile(_single_gguf(path))
    if load_format == "auto" and not list(path.glob("*.safetensors")) and list(path.glob("*.gguf")):
        return GgufFile(_single_gguf(path))
    if load_format in ("auto", "safetensors"):
        return SafetensorsFolder(path)
    raise WeightError(f"--load-format {load_format!r} is not one of {', '.join(LOAD_FORMATS)}")


def load_weights(checkpoint: Checkpoint, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """All tensors of the model in `dtype`, by name. `lm_head.weight` is left out where it is the embedding.

    Raises WeightError naming tensors that are missing, unknown, or of another shape.
    """
    config = checkpoint.config
    expected = expected_shapes(config)
    stored = {name for name in checkpoint.names() if not name.endswith(_IGNORED_SUFFIXES)}
    if config.tie_word_embeddings:
        stored.discard(LM_HEAD)
    _refuse("missing from the checkpoint", sorted(expected.keys() - stored))
    _refuse("in the checkpoint but not part of the model", sorted(stored - expected.keys()))
    wrong = [f"{n} {checkpoint.shape(n)}, not {s}" for n, s in expected.items() if checkpoint.shape(n) != s]
    _refuse("of another shape than config.json implies", wrong)
    return {name: checkpoint.read(name).to(dtype).contiguous() for name in expected}


def _refuse(what: str, names: list[str]) -> None:
    if names:
        more = f" and {len(names) - _NAMED_AT_MOST} more" if len(names) > _NAMED_AT_MOST else ""
        raise WeightError(f"{len(names)} tensors {what}: {', '.join(names[:_NAMED_AT_MOST])}{more}")


def _single_gguf(path: Path) -> Path:
    if path.is_file():
        return path
    files = sorted(path.glob("*.gguf"))
    if len(files) != 1:
        raise WeightError(f"{path}: {len(files)} .gguf files; name the one to load")
    return files[0]


def _dummy(path: Path) -> DummyCheckpoint:
    file = path / "config.json" if path.is_dir() else path
    try:
        return DummyCheckpoint(from_hf(json.loads(file.read_text())))
    except (OSError, ValueError, ConfigError) as error:
        raise WeightError(f"{file}: {error}") from error
