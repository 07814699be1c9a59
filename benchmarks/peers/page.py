"""The comparison as a section of a page: the table, and what must stand beside it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from benchmarks.peers.table import Row, markdown


@dataclass(frozen=True, slots=True)
class About:
    """When and how it was measured."""

    started: datetime
    seed: int
    command: str


def render(tables: Mapping[str, Sequence[Row]], about: About) -> str:
    """Markdown: circumstances, then a table for each client."""
    cores = len(os.sched_getaffinity(0))
    command = (
        f"`{about.command}`, {about.started:%Y-%m-%d}, revision {_revision()}, {_processor()} with {cores} cores, seeds from {about.seed}."
    )
    parts = [command]
    for client, found in tables.items():
        parts += [f"Measured by {client}:", markdown(found)]
    return "\n\n".join(parts) + "\n"


def _revision() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent, check=False)
    return done.stdout.strip() or "unknown"


def _processor() -> str:
    names = [line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else "unknown processor"
