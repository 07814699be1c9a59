"""What the matrix products alone would take for the lines of the comparison."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.loads import LOADS, LONG_PREFIX, Load
from benchmarks.peers.table import Floors
from benchmarks.targets import BF16, INT8, MANY, MEMORY, ONE, RADIX

_ROWS_OF_PREFILL = 512  # of benchmarks.floor
_FILE_BITS = {"bf16": 1.0, "int8": 0.5}  # the weights, as a share of the bfloat16 file


def floors(model: Path) -> Floors:
    """Runs benchmarks.floor on this machine; in the units of the table."""
    raw = subprocess.run([sys.executable, "-m", "benchmarks.floor", str(model)], capture_output=True, text=True, check=True)
    measured: dict[str, dict[str, float]] = json.loads(raw.stdout)
    weights = (model / "model.safetensors").stat().st_size / 2**20
    found: dict[tuple[str, str, str], float] = {}
    for kind, server in (("int8", INT8), ("bf16", BF16)):
        times = measured[kind]
        found[(ONE, "TPOT", server)] = times["decode_1"]
        found[(ONE, "TTFT", server)] = times["prefill"]
        found[(MANY, "p99 ITL", server)] = times["decode_32"]
        found[(MEMORY, "PSS - KV", server)] = weights * _FILE_BITS[kind]
        for load in LOADS:
            found[(load.name, "tok/s", server)] = load.prompts * load.output / seconds(load, times)
    found[(LONG_PREFIX.name, "duration", RADIX)] = seconds(LONG_PREFIX, measured["int8"])
    return found


def seconds(load: Load, times: dict[str, float]) -> float:
    """Every distinct prompt token once at the speed of a prefill, and decode steps with every user in them."""
    distinct = load.groups * load.shared + load.prompts * load.own
    steps = load.prompts / load.users * load.output
    return (distinct / _ROWS_OF_PREFILL * times["prefill"] + steps * times[f"decode_{load.users}"]) / 1e3
