"""A Hugging Face folder: `config.json` and one or more `.safetensors` files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from services.scheduler.models.config import ConfigError, ModelConfig, from_hf
from services.scheduler.weights.interface import WeightError

_HEADER_LENGTH_BYTES = 8


class SafetensorsFolder:
    """Reads tensors through a memory map, file by file; a sharded checkpoint is the union of its files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.config: ModelConfig = _config(folder)
        self._file_of: dict[str, Path] = {}
        self._header_of: dict[str, dict[str, Any]] = {}
        self._data_start: dict[Path, int] = {}
        self._open: tuple[Path, Any] | None = None
        for file in _files(folder):
            self._index(file)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._file_of))

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._header_of[name]["shape"])

    def sample(self, name: str) -> bytes:
        file, (begin, end) = self._file_of[name], self._header_of[name]["data_offsets"]
        head = f"{self._header_of[name]['dtype']}:".encode()
        with file.open("rb") as handle:
            for at in (begin, (begin + end) // 2, max(begin, end - 64)):
                handle.seek(self._data_start[file] + at)
                head += handle.read(min(64, end - at))
        return head

    def read(self, name: str) -> torch.Tensor:
        file = self._file_of[name]
        if self._open is None or self._open[0] != file:
            self._open = (file, safe_open(str(file), framework="pt"))
        tensor: torch.Tensor = self._open[1].get_tensor(name)
        return tensor

    def _index(self, file: Path) -> None:
        for name, entry in _header(file).items():
            if name == "__metadata__":
                continue
            if name in self._file_of:
                raise WeightError(f"{file}: tensor {name} is also in {self._file_of[name].name}")
            self._file_of[name], self._header_of[name] = file, entry
        with file.open("rb") as handle:
            self._data_start[file] = _HEADER_LENGTH_BYTES + int.from_bytes(handle.read(_HEADER_LENGTH_BYTES), "little")


def _files(folder: Path) -> list[Path]:
    """The shards named by the index file if there is one, else every safetensors file."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        shards = sorted(set(_json(index).get("weight_map", {}).values()))
        files = [folder / shard for shard in shards]
        absent = [file.name for file in files if not file.exists()]
        if absent:
            raise WeightError(f"{folder}: the index names files that are not there: {', '.join(absent)}")
        return files
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise WeightError(f"{folder}: no .safetensors file found")
    return files


def _header(file: Path) -> dict[str, dict[str, Any]]:
    size = file.stat().st_size
    with file.open("rb") as handle:
        length = int.from_bytes(handle.read(_HEADER_LENGTH_BYTES), "little")
        if length > size:
            raise WeightError(f"{file}: not a safetensors file, or cut short")
        try:
            header: dict[str, dict[str, Any]] = json.loads(handle.read(length))
        except ValueError:
            raise WeightError(f"{file}: not a safetensors file") from None
    need = _HEADER_LENGTH_BYTES + length
    need += max((e["data_offsets"][1] for n, e in header.items() if n != "__metadata__"), default=0)
    if size < need:
        raise WeightError(f"{file}: cut short, {size} bytes where its header promises {need}")
    return header


def _config(folder: Path) -> ModelConfig:
    if not (folder / "config.json").exists():
        raise WeightError(f"{folder}: no config.json")
    generation = folder / "generation_config.json"
    try:
        return from_hf(_json(folder / "config.json"), _json(generation) if generation.exists() else None)
    except ConfigError as error:
        raise WeightError(f"{folder}: {error}") from error


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except ValueError as error:
        raise WeightError(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise WeightError(f"{path}: a JSON object is needed")
    return value
