"""Conversations whose users come back after a while: the load that decides between eviction policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt

VOCAB = 32_000


@dataclass(frozen=True, slots=True)
class Turn:
    """What a user adds to the history, how long the answer is, and the pause before it, counted from the last answer."""

    new_tokens: int
    output_tokens: int
    pause_ms: float


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns of one user; the first one's pause counts from the beginning of time."""

    number: int
    turns: tuple[Turn, ...]


def conversations(
    count: int, *, seed: int, every_ms: float, context: int, think_ms: float = 60_000, new_tokens: int = 250, output_tokens: int = 24
) -> list[Conversation]:
    """`count` conversations that begin `every_ms` apart on average. Lengths are skewed: a few are many times the usual one.

    A user goes on with probability 0.8 after each turn, until the history would exceed `context` tokens.
    """
    draw = Random(seed)
    made, start = [], 0.0
    for number in range(count):
        start += draw.expovariate(1 / every_ms)
        turns, length, pause = [], 0, start
        while True:
            new = max(8, min(int(draw.lognormvariate(0, 1.0) * new_tokens), context // 3))
            out = max(4, min(int(draw.lognormvariate(0, 0.5) * output_tokens), context // 6))
            length += new + out
            if length >= context:
                break
            turns.append(Turn(new, out, pause))
            if draw.random() > 0.8:
                break
            pause = draw.expovariate(1 / think_ms)
        made.append(Conversation(number, tuple(turns)))
    return made


def words(conversation: int, turn: int, count: int) -> npt.NDArray[np.int32]:
    """The tokens a user says: the same for the same conversation and turn."""
    return np.random.default_rng((conversation, turn)).integers(1, VOCAB, count).astype(np.int32)


def total_turns(loaded: Sequence[Conversation]) -> int:
    return sum(len(conversation.turns) for conversation in loaded)
