"""Files that are generated and committed: written, or with --check compared."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def write_or_check(files: Mapping[Path, str], argv: Sequence[str]) -> int:
    """Write the files; with --check name those that differ, and return 1 if there are any."""
    if "--check" not in argv:
        for file, text in files.items():
            file.write_text(text)
        return 0
    stale = [file.name for file, text in files.items() if not file.exists() or file.read_text() != text]
    if stale:
        print(f"out of date, run `make docs`: {', '.join(stale)}", file=sys.stderr)
    return 1 if stale else 0
