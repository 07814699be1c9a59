"""How much memory this process may still take, as the kernel and its control groups say."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

_UNLIMITED = 1 << 60  # version 1 groups write a number near 2**63 for "no limit"


class MemoryProvider(Protocol):
    """Bytes of one device's memory. Tests put numbers of their own here."""

    def available_bytes(self) -> int:
        """What can be taken now without pushing anybody out."""

    def total_bytes(self) -> int:
        """All there is, or the limit set for this process."""

    def spare_bytes(self) -> int:
        """What can be taken before this process is in danger: as `available_bytes`, with what may be pushed out to swap."""


class HostMemory:
    """The smaller of what the machine has and what the control group of this process still allows."""

    def __init__(self, proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> None:
        self._proc = proc
        self._cgroup = cgroup

    def available_bytes(self) -> int:
        group = self._group()
        free = self._meminfo("MemAvailable")
        return free if group is None else max(0, min(free, group[0] - group[1]))

    def total_bytes(self) -> int:
        group = self._group()
        total = self._meminfo("MemTotal")
        return total if group is None else min(total, group[0])

    def spare_bytes(self) -> int:
        group = self._group()
        free = self._meminfo("MemAvailable") + self._meminfo("SwapFree")
        return free if group is None else max(0, min(free, group[0] - group[1]))

    def _meminfo(self, field: str) -> int:
        for line in (self._proc / "meminfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) * 1024
        raise OSError(f"{self._proc}/meminfo has no {field}")

    def _group(self) -> tuple[int, int] | None:
        """(limit, bytes in use that cannot be reclaimed) of the tightest group, or None without a limit."""
        found = [limits for folder in self._folders() if (limits := _limits(folder)) is not None]
        return min(found, key=lambda limits: limits[0] - limits[1]) if found else None

    def _folders(self) -> list[Path]:
        """This process's group and those above it, for both versions of control groups."""
        folders = [self._cgroup, self._cgroup / "memory"]
        try:
            lines = (self._proc / "self" / "cgroup").read_text().splitlines()
        except OSError:
            return folders
        for line in lines:
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            base = self._cgroup / "memory" if controllers else self._cgroup
            parts = Path(path.lstrip("/")).parts
            folders += [base.joinpath(*parts[:depth]) for depth in range(1, len(parts) + 1)]
        return folders


def _limits(folder: Path) -> tuple[int, int] | None:
    limit = _number(folder / "memory.max") or _number(folder / "memory.limit_in_bytes")
    if limit is None or limit >= _UNLIMITED:
        return None
    used = _number(folder / "memory.current") or _number(folder / "memory.usage_in_bytes") or 0
    return limit, max(0, used - _reclaimable(folder))


def _reclaimable(folder: Path) -> int:
    """Page cache that counts as used but is given up on demand."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    stat = dict(line.split(None, 1) for line in lines)
    return int(stat.get("inactive_file") or stat.get("total_inactive_file") or 0)


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
