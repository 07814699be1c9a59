"""A memory limit of the kernel's own for a running process, where this user may set one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


@contextmanager
def memory_group(limit: int) -> Iterator[Path | None]:
    """An empty control group that may take `limit` bytes; None where none can be made. Writing a pid to its `cgroup.procs` moves it in."""
    made = _make(limit)
    try:
        yield made
    finally:
        if made is not None:
            _remove(made)


def _make(limit: int) -> Path | None:
    for parent, name in _parents():
        group = parent / f"headrace-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / name).write_text(str(limit))
        except OSError:
            group.rmdir()
            continue
        return group
    return None


def _parents() -> Iterator[tuple[Path, str]]:
    """Where this process's groups of memory are, in both versions, and the name of the limit's file."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            yield _ROOT / "memory" / path.lstrip("/"), "memory.limit_in_bytes"
        elif not controllers:
            yield _ROOT / path.lstrip("/"), "memory.max"


def _remove(group: Path) -> None:
    """A group can go once the last process has left it."""
    until = time.monotonic() + 10
    while True:
        try:
            group.rmdir()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
