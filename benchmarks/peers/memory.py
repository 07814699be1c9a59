"""What a server holds in memory, with and without its key-value cache."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import psutil

_PAGES_OF_A_POOL = 0.25  # a mapping this large, as a share of the pool, can be the pool; others are something else


def pss_bytes(processes: Iterable[psutil.Process]) -> int:
    """Memory of a tree, shared pages divided among those who share them."""
    return sum(int(process.memory_full_info().pss) for process in processes)


def resident_pool_bytes(processes: Iterable[psutil.Process], pool_bytes: int) -> int:
    """Pages of the key-value pool that are really in memory, at most `pool_bytes`.

    A pool is one or two mappings without a file; of a tree's mappings only those as large as a part of the pool count.
    """
    found = sum(rss for process in processes for size, rss in anonymous(process.pid) if size >= _PAGES_OF_A_POOL * pool_bytes)
    return min(found, pool_bytes)


def anonymous(pid: int) -> list[tuple[int, int]]:
    """(size, resident) in bytes of every mapping without a file."""
    return parse_smaps(Path(f"/proc/{pid}/smaps").read_text())


def parse_smaps(text: str) -> list[tuple[int, int]]:
    """(size, resident) in bytes of the mappings of a smaps file that have no file and no name."""
    found, size, plain = [], 0, False
    for line in text.splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):  # 7f00-7f10 rw-p 00000000 00:00 0 [/path]
            plain = len(words) < 6
        elif plain and words[0] == "Size:":
            size = int(words[1]) * 1024
        elif plain and words[0] == "Rss:":
            found.append((size, int(words[1]) * 1024))
    return found
