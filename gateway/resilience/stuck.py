"""Streams that stand still while others move: their worker lives, but has lost sight of them.

A worker that says nothing at all is found by its silence (`WorkerSession.check_pulse`); this is for one request among many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gateway.flight.choice import Choice

_SET_BACK = 4  # times the limit, for a worker that has requests waiting: a stream may have been set back behind them


@dataclass(frozen=True, slots=True)
class Running:
    """Choices that run on one worker, and whether that worker says that requests wait."""

    choices: Iterable[Choice]
    has_waiting: bool


def stuck(running: Iterable[Running], *, now: float, heard_from: float, limit_s: float) -> Iterator[Choice]:
    """Choices in mid-stream without a token for `limit_s` seconds, while any choice on any worker got one in that time.

    A choice whose tokens come `stream_interval` at a time has that many times as long. `heard_from`: since when this
    process has listened without a pause; what came while it stood still, nobody has missed. If nothing moves anywhere,
    nobody is blamed. Times are monotonic seconds.
    """
    everybody = [(choice, group.has_waiting) for group in running for choice in group.choices]
    newest = max((choice.last_token_at for choice, _ in everybody), default=0.0)
    if newest <= max(heard_from, now - limit_s):
        return
    for choice, has_waiting in everybody:
        patience_s = limit_s * choice.flight.spec.stream_interval * (_SET_BACK if has_waiting else 1)
        if choice.output_ids and not choice.awaiting and now - max(choice.last_token_at, heard_from) > patience_s:
            yield choice
