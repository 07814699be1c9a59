"""Loads the kernel library and chooses an instruction set."""

from __future__ import annotations

import threading
from pathlib import Path

import torch

from services.scheduler.kernels.build import Progress, build
from services.scheduler.kernels.errors import KernelsUnavailable

_guard = threading.Lock()
_loaded: set[Path] = set()  # a library can register its operators only once in a process


def load(cache_dir: Path, progress: Progress | None = None) -> None:
    """Builds the library if needed and registers `torch.ops.headrace_cpu`. Raises `KernelsUnavailable`."""
    with _guard:
        if _loaded:
            return
        library = build(cache_dir, progress)
        try:
            torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
        except OSError as error:
            raise KernelsUnavailable(f"cannot load {library}: {error}") from error
        _loaded.add(library)


def isas() -> list[str]:
    """The instruction sets that this processor executes, best first. `load` comes before."""
    if not _loaded:
        raise KernelsUnavailable("the kernel library has not been loaded")
    return list(torch.ops.headrace_cpu.isas())


def resolve_isa(wanted: str | None) -> str:
    """`wanted`, or the best one. Raises `ValueError` for one that this processor cannot execute."""
    available = isas()
    if wanted is None:
        return available[0]
    if wanted not in available:
        raise ValueError(f"cpu isa {wanted!r} is not available here; choose one of {', '.join(available)}")
    return wanted
