"""How requests are sent, apart from what is in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Sending:
    """`clock_zero` is the run's start on time.perf_counter; times of outcomes count from there."""

    model: str
    temperature: float = 0.0
    ignore_eos: bool = True
    api_key: str = ""
    timeout_s: float = 600.0
    keep_text: bool = False
    clock_zero: float = 0.0
    extra_body: dict[str, Any] = field(default_factory=dict)
