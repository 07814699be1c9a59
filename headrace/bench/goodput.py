"""Targets a request must meet to count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.bench.record import Outcome
from services.common.config import ConfigError

KINDS = ("ttft", "tpot", "e2e", "itl")


def parse_targets(words: Sequence[str]) -> dict[str, float]:
    """`["ttft:500", "tpot:50"]` → seconds by kind. Raises ConfigError."""
    targets: dict[str, float] = {}
    for word in words:
        kind, colon, value = word.partition(":")
        try:
            milliseconds = float(value)
        except ValueError:
            milliseconds = -1.0
        if kind not in KINDS or not colon or milliseconds < 0:
            raise ConfigError(f"--goodput: {word!r} is not KIND:MILLISECONDS with a kind of {', '.join(KINDS)}")
        targets[kind] = milliseconds / 1000
    return targets


def meets(outcome: Outcome, targets: Mapping[str, float]) -> bool:
    """Did the request succeed within all targets? `itl` bounds its longest pause."""
    if not outcome.ok:
        return False
    measured = {"ttft": outcome.ttft, "tpot": outcome.tpot or 0.0, "e2e": outcome.latency, "itl": max(outcome.gaps, default=0.0)}
    return all(measured[kind] <= bound for kind, bound in targets.items())
