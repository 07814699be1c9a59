"""The library is built once, and a machine that cannot build it is told why."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from services.common.config import cache_dir
from services.scheduler.kernels import build as build_module
from services.scheduler.kernels.build import build, compiled_isas
from services.scheduler.kernels.errors import KernelsUnavailable


def test_a_built_library_is_not_built_again() -> None:
    lines: list[str] = []
    first = build(cache_dir())
    assert build(cache_dir(), lines.append) == first
    assert lines == []


def test_no_compiler_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KernelsUnavailable, match=r"no C\+\+ compiler"):
        build(tmp_path)


def test_what_the_compiler_says_is_passed_on(tmp_path: Path) -> None:
    fake = tmp_path / "cc"
    fake.write_text('#!/bin/sh\n[ "$1" = --version ] && echo fake 1 && exit 0\necho "no such header" >&2\nexit 1\n')
    fake.chmod(0o755)
    with pytest.raises(KernelsUnavailable, match="no such header"):
        build(tmp_path / "cache", compiler=str(fake))
    assert not list(tmp_path.rglob("*.so"))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "kernels").write_text("a file where the folder should be")
    with pytest.raises(KernelsUnavailable, match="kernels"):
        build(tmp_path)


def test_another_compiler_or_source_has_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = build_module._find_compiler()
    before = build_module._digest(compiler)
    copy = tmp_path / "cpu"
    copy.mkdir()
    for path in build_module.SOURCES.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(build_module, "SOURCES", copy)
    assert build_module._digest(compiler) == before
    (copy / "gemm.cpp").write_text("// changed\n")
    assert build_module._digest(compiler) != before


def test_code_for_a_newer_processor_cannot_be_linked_into_an_older_path(tmp_path: Path) -> None:
    """A weak symbol outside the instruction set's namespace could be merged with another path's copy of it."""
    for isa in compiled_isas():
        unit = next(u for u in build_module._units() if u.object == f"{isa}_pack")
        build_module._compile_unit(build_module._find_compiler(), unit, tmp_path)
        symbols = subprocess.run(["nm", "-C", f"{tmp_path}/{unit.object}.o"], capture_output=True, text=True, check=True).stdout
        assert [line for line in symbols.splitlines() if line[17:18] in "WVu" and f"headrace::{isa}::" not in line] == []
