"""Converted models under the cache folder: each is complete or absent, however many processes ask at once."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace.models.catalog import CatalogModel
from headrace.models.errors import ModelError
from headrace.models.fetch import fetch
from headrace.models.progress import Say
from headrace.programs import python_command, python_environment

REVISION = 1  # raise it when a conversion's result changes; older ones are then made again
_MANIFEST = "conversion.json"


@dataclass(frozen=True, slots=True)
class Stored:
    """A converted model in the store."""

    name: str
    folder: Path
    megabytes: float


class ModelStore:
    """`root/models/<name>` are converted folders, `root/downloads` the GGUF files they came from."""

    def __init__(self, root: Path) -> None:
        self._models, self._downloads = root / "models", root / "downloads"

    def folder(self, name: str) -> Path:
        """Where the model of that name is, or will be."""
        return self._models / name

    def gguf(self, model: CatalogModel) -> Path:
        """Where the catalog model's GGUF file is, or will be."""
        return self._downloads / f"{model.name}.gguf"

    def has(self, name: str) -> bool:
        """Is the model there, complete, and converted by this revision?"""
        try:
            manifest = json.loads((self.folder(name) / _MANIFEST).read_text())
        except (OSError, ValueError):
            return False
        return bool(manifest.get("revision") == REVISION)

    def stored(self) -> list[Stored]:
        """Everything that can be served from the store, by name."""
        folders = sorted(self._models.iterdir()) if self._models.is_dir() else []
        return [Stored(f.name, f, sum(p.stat().st_size for p in f.rglob("*")) / 1e6) for f in folders if self.has(f.name)]

    def ensure(self, model: CatalogModel, say: Say) -> Path:
        """The catalog model's folder; fetches and converts if need be. Raises ModelError."""
        if not self.has(model.name):
            with self._lock(model.name, say):
                if not self.has(model.name):
                    gguf = self._fetched(model, say)
                    if model.cannot_serve:
                        raise ModelError(f"{model.name} is fetched ({gguf}) but cannot be served: {model.cannot_serve}")
                    self._convert(gguf, model.name, say)
        return self.folder(model.name)

    def download(self, model: CatalogModel, say: Say) -> Path:
        """The catalog model's GGUF file, fetched if need be, whether the engine can run it or not. Raises ModelError."""
        with self._lock(model.name, say):
            return self._fetched(model, say)

    def _fetched(self, model: CatalogModel, say: Say) -> Path:
        gguf = self.gguf(model)
        if not gguf.exists():
            fetch(model, gguf, say)
        return gguf

    def ensure_gguf(self, file: Path, say: Say) -> Path:
        """The folder converted from a GGUF file of the user's. Raises ModelError."""
        state = file.stat()
        key = hashlib.sha256(f"{file.resolve()}:{state.st_size}:{state.st_mtime_ns}".encode()).hexdigest()[:10]
        name = f"{file.stem.lower()}-{key}"
        if not self.has(name):
            with self._lock(name, say):
                if not self.has(name):
                    self._convert(file, name, say)
        return self.folder(name)

    def _convert(self, gguf: Path, name: str, say: Say) -> None:
        """Into a folder of its own, renamed when complete."""
        self._models.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=self._models))
        try:
            say(f"convert {gguf.name}: once, takes a few seconds")
            run = python_command("headrace.models.convert", [str(gguf), str(work)])
            pipe = subprocess.PIPE
            with subprocess.Popen(run, stdout=pipe, stderr=pipe, text=True, env=python_environment()) as process:
                assert process.stdout is not None and process.stderr is not None
                for line in process.stdout:
                    say(line.rstrip())
                wrong = process.stderr.read().strip()
            if process.returncode:
                raise ModelError(f"{gguf} cannot be converted: {wrong.splitlines()[-1] if wrong else 'the process was killed'}")
            (work / _MANIFEST).write_text(json.dumps({"revision": REVISION, "source": gguf.name}))
            work.chmod(0o755)
            for file in work.iterdir():  # services may run under another user
                file.chmod(0o644)
            shutil.rmtree(self.folder(name), ignore_errors=True)
            work.rename(self.folder(name))
        finally:
            shutil.rmtree(work, ignore_errors=True)

    @contextmanager
    def _lock(self, name: str, say: Say) -> Iterator[None]:
        """One process at a time works on a model; the others wait and find it done."""
        self._downloads.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._downloads / f".{name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"{name}: another process is preparing it, waiting")
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)
