"""What a fake worker does with a request, step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from services.common.errors import HeadraceError
from tests.fakes import byte_vocabulary as vocabulary


@dataclass(frozen=True)
class Emit:
    """One step with these tokens for each choice that still runs, from the choice's position on."""

    ids: Sequence[int]


@dataclass(frozen=True)
class Wait:
    """Let time pass, or an event happen."""

    seconds: float = 0.0
    event: asyncio.Event | None = None


@dataclass(frozen=True)
class Finish:
    """End every choice. reason: a name of the contract's FinishReason without its prefix. last: tokens in the same frame."""

    reason: str = "STOP"
    token_id: int | None = None
    stop_index: int | None = None
    keep_bytes: int | None = None
    last: Sequence[int] = ()


@dataclass(frozen=True)
class Refuse:
    """End every choice with an error."""

    error: HeadraceError


@dataclass(frozen=True)
class Die:
    """Break the Session, as a killed process does."""


@dataclass(frozen=True)
class Silence:
    """Never say anything again in this request."""


@dataclass(frozen=True)
class Logprobs:
    """One token with its logprob and alternatives."""

    token: int
    chosen: float
    top: Sequence[tuple[int, float]] = field(default=())


Action = Emit | Wait | Finish | Refuse | Die | Silence | Logprobs
Script = Sequence[Action]


def say(text: str, *, chunk: int = 1, pause_s: float = 0.0, end: Action | None = None) -> list[Action]:
    """Emit a text some tokens at a time and stop at the end token."""
    ids = vocabulary.ids(text)
    actions: list[Action] = []
    for at in range(0, len(ids), chunk):
        actions.append(Emit(ids[at : at + chunk]))
        if pause_s:
            actions.append(Wait(pause_s))
    if end is not None:
        return [*actions, end]
    return [*actions, Emit([vocabulary.EOS]), Finish("STOP", token_id=vocabulary.EOS)]


def story(prompt: Sequence[int], length: int) -> list[int]:
    """The deterministic output of a prompt: what an undisturbed greedy run gives."""
    state = sum((i + 1) * t for i, t in enumerate(prompt)) & 0xFFFF
    out = []
    for _ in range(length):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        out.append(97 + state % 26)
    return out


ScriptFor = Callable[[Sequence[int], int], Script]
