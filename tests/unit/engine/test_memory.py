"""Available memory under both versions of control groups, from folders made up for the purpose."""

from __future__ import annotations

from pathlib import Path

from services.scheduler.engine.memory import HostMemory

GIB = 1 << 30


def _proc(tmp_path: Path, cgroup: str) -> Path:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    sizes = {"MemTotal": 16 * GIB, "MemAvailable": 8 * GIB, "SwapFree": GIB}
    (tmp_path / "proc" / "meminfo").write_text("".join(f"{name}: {size // 1024} kB\n" for name, size in sizes.items()))
    (tmp_path / "proc" / "self" / "cgroup").write_text(cgroup)
    return tmp_path / "proc"


def _write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_without_a_group_limit_the_machine_counts(tmp_path: Path) -> None:
    _write(tmp_path / "cg" / "a", memory__max="max\n", memory__current=str(GIB))
    memory = HostMemory(_proc(tmp_path, "0::/a\n"), tmp_path / "cg")
    assert (memory.available_bytes(), memory.total_bytes()) == (8 * GIB, 16 * GIB)


def test_the_tightest_group_above_the_process_binds(tmp_path: Path) -> None:
    _write(tmp_path / "cg" / "a", memory__max=str(4 * GIB), memory__current=str(3 * GIB), memory__stat=f"inactive_file {GIB}\nanon 5\n")
    _write(tmp_path / "cg" / "a" / "b", memory__max=str(6 * GIB), memory__current=str(GIB))
    memory = HostMemory(_proc(tmp_path, "0::/a/b\n"), tmp_path / "cg")
    assert (memory.available_bytes(), memory.total_bytes()) == (2 * GIB, 4 * GIB)


def test_version_one_groups(tmp_path: Path) -> None:
    _write(
        tmp_path / "cg" / "memory" / "x",
        memory__limit_in_bytes=str(2 * GIB),
        memory__usage_in_bytes=str(GIB),
        memory__stat=f"total_inactive_file {GIB // 2}\n",
    )
    memory = HostMemory(_proc(tmp_path, "5:cpu:/y\n4:memory:/x\n"), tmp_path / "cg")
    assert (memory.available_bytes(), memory.total_bytes()) == (GIB + GIB // 2, 2 * GIB)


def test_what_could_be_swapped_out_counts_where_no_group_binds(tmp_path: Path) -> None:
    assert HostMemory(_proc(tmp_path, "0::/\n"), tmp_path / "cg").spare_bytes() == 9 * GIB
    _write(tmp_path / "cg", memory__max=str(2 * GIB), memory__current=str(GIB))
    assert HostMemory(tmp_path / "proc", tmp_path / "cg").spare_bytes() == GIB


def test_an_exhausted_group_leaves_nothing(tmp_path: Path) -> None:
    _write(tmp_path / "cg", memory__max=str(GIB), memory__current=str(2 * GIB))
    assert HostMemory(_proc(tmp_path, "0::/\n"), tmp_path / "cg").available_bytes() == 0


def test_this_machine_has_memory() -> None:
    memory = HostMemory()
    assert 0 < memory.available_bytes() <= memory.total_bytes()
