"""The comparison as a section of a page: the table, and what must stand beside it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from benchmarks.peers.table import Row, markdown


@dataclass(frozen=True, slots=True)
class About:
    """When and how it was measured."""

    started: datetime
    client: str
    seed: int
    command: str


def render(found: Sequence[Row], about: About) -> str:
    """Markdown: circumstances, then the table."""
    cores = len(os.sched_getaffinity(0))
    lines = [
        f"`{about.command}`, {about.started:%Y-%m-%d}, revision {_revision()}, {_processor()} with {cores} cores, "
        f"load generator {about.client}, seeds from {about.seed}.",
        "",
        markdown(found),
        "",
    ]
    return "\n".join(lines)


def _revision() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent, check=False)
    return done.stdout.strip() or "unknown"


def _processor() -> str:
    names = [line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else "unknown processor"
