"""Compiles the C++ kernels once per machine into the cache folder.

The library's name is a digest of the sources, the compiler and torch, so an upgrade of any of them builds anew and
never loads a stale file. Builders on one machine take turns by a file lock; a finished library is put in place by an
atomic rename.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from services.scheduler.kernels.errors import KernelsUnavailable

SOURCES = Path(__file__).parent / "cpu"

# Compiled once for each instruction set, in a namespace of its own.
PER_ISA = ("gemm", "attention", "rows", "rmsnorm", "silu_mul", "embed", "rope", "pack", "table")
COMMON = ("decoder", "plan", "load", "memory", "pool")

# -ffp-contract=off: every multiply-add is written down, so that all tile sizes compute the same bits.
_FLAGS = ("-O3", "-std=c++20", "-fPIC", "-ffp-contract=off", "-fno-math-errno", "-fvisibility=hidden", "-DNDEBUG", "-w")
_X86_ISAS: dict[str, tuple[str, ...]] = {
    "avx512": (
        *("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq"),
        *("-mavx512vnni", "-mavx512bf16", "-mfma", "-mf16c"),
    ),
    "avx2": ("-mavx2", "-mfma", "-mf16c"),
    "portable": (),
}

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Unit:
    source: str
    object: str
    flags: tuple[str, ...]


def compiled_isas() -> tuple[str, ...]:
    """The instruction sets that this kind of machine gets code for, best first."""
    return tuple(_X86_ISAS) if platform.machine() in ("x86_64", "AMD64") else ("portable",)


def build(cache_dir: Path, progress: Progress | None = None, compiler: str | None = None) -> Path:
    """Path of the kernel library, compiled if it is not in `cache_dir` yet.

    `progress` receives one line per compiled file, with its share of the whole. Raises `KernelsUnavailable` when there
    is no compiler, it fails, or the folder cannot be written; the message holds the compiler's own words.
    """
    compiler = compiler or _find_compiler()
    folder = cache_dir / "kernels" / _digest(compiler)
    library = folder / "headrace_cpu.so"
    if library.exists():
        return library
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder / "lock"):
            if not library.exists():
                _compile(compiler, library, progress or (lambda line: None))
    except OSError as error:
        raise KernelsUnavailable(f"cannot write the kernel cache {folder}: {error}") from error
    return library


def _find_compiler() -> str:
    for name in ("g++", "clang++", "c++"):
        if path := shutil.which(name):
            return path
    raise KernelsUnavailable("no C++ compiler found (looked for g++, clang++ and c++)")


def _digest(compiler: str) -> str:
    version = _run([compiler, "--version"]).splitlines()[0]
    digest = hashlib.sha256(f"{version}\n{torch.__version__}\n{platform.machine()}\n{_FLAGS}\n{_X86_ISAS}".encode())
    for path in sorted([*SOURCES.glob("*.cpp"), *SOURCES.glob("*.h")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def _units() -> list[_Unit]:
    include = Path(torch.__file__).parent / "include"
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    units = [_Unit("binding", "binding", ("-O1", f"-I{include}", abi))]  # the slowest goes first
    for isa in compiled_isas():
        flags = (f"-DHR_ISA={isa}", *(_X86_ISAS[isa] if len(compiled_isas()) > 1 else ()))
        units += [_Unit(name, f"{isa}_{name}", flags) for name in PER_ISA]
    return units + [_Unit(name, name, ()) for name in COMMON]


def _compile(compiler: str, library: Path, progress: Progress) -> None:
    started = time.monotonic()
    units, folder = _units(), library.parent
    with ThreadPoolExecutor(max_workers=max(1, len(os.sched_getaffinity(0)))) as pool:
        jobs = {pool.submit(_compile_unit, compiler, unit, folder): unit for unit in units}
        for done, job in enumerate(as_completed(jobs), start=1):
            job.result()
            progress(f"building kernels: {done}/{len(units)} ({jobs[job].object})")
    objects = [folder / f"{unit.object}.o" for unit in units]
    torch_lib = Path(torch.__file__).parent / "lib"
    linked = library.with_suffix(".part")
    libraries = [f"-L{torch_lib}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{torch_lib}", "-pthread"]
    _run([compiler, "-shared", "-o", str(linked), *map(str, objects), *libraries])
    linked.replace(library)
    for path in objects:
        path.unlink()
    progress(f"building kernels: done in {time.monotonic() - started:.0f} s")


def _compile_unit(compiler: str, unit: _Unit, folder: Path) -> None:
    """Compiles one file. A finished object is kept until the library is linked, so a build cut short is continued."""
    target = folder / f"{unit.object}.o"
    if target.exists():
        return
    part = target.with_suffix(".part")
    _run([compiler, *_FLAGS, *unit.flags, "-c", str(SOURCES / f"{unit.source}.cpp"), "-o", str(part)])
    part.replace(target)


def _run(command: Sequence[str]) -> str:
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise KernelsUnavailable(f"cannot run {command[0]}: {error}") from error
    if result.returncode != 0:
        raise KernelsUnavailable(f"{command[0]} failed on {command[-3]}: {result.stderr.strip()[-2000:]}")
    return result.stdout
