"""One prompt in many batches: how many different answers? One is the pass condition.

`single` sends a prompt alone and in batches of random size among copies of itself and strangers. `prefix` does so with
prompts that share a beginning and differ in length. `radix_cache` compares an answer computed from nothing with the
same answer computed on a cached prefix, and fails if nothing was ever found in the cache: that would prove nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

MODES = ("single", "prefix", "radix_cache")


class Answer(NamedTuple):
    """Token ids, and how much of the prompt was found in the cache."""

    ids: tuple[int, ...]
    cached_tokens: int = 0


Ask = Callable[[str], Answer]
Flush = Callable[[], None]

_TEXT = (
    "The mill stood where the river bends twice before it meets the sea. Its wheel had not stopped in living memory, and "
    "the miller, who counted everything, counted its turns. On market days he told the number to anyone who asked, and on "
    "other days to the cat. When the drought came, the channel above the wheel fell silent, and for the first time he heard "
    "the clock in his own kitchen. He did not care for it. He walked up along the dry stones to see where the water had gone, "
    "and found that the beavers had had the same idea as his grandfather, only higher up. "
)
_STRANGERS = ("Count to ten:", "Name three rivers.", "def fibonacci(n):", "Once upon a time", "The capital of France is", "1 + 1 =")
_PREFIX_WORDS = (20, 45, 90, 180)
_SHARED_BY_ALL = 8  # tokens that any two prompts may share


@dataclass
class Result:
    """Distinct answers per prompt; `trials` of each."""

    mode: str
    trials: int
    answers: dict[str, set[tuple[int, ...]]] = field(default_factory=dict)
    asked: int = 0
    cached: int = 0  # answers on a prefix of which the server had more than a few tokens

    @property
    def passed(self) -> bool:
        """Every prompt has one answer, and what was to be compared took place."""
        one_each = bool(self.answers) and all(len(found) == 1 for found in self.answers.values())
        return one_each and (self.mode != "radix_cache" or 0 < self.cached < self.asked)

    def note(self, prompt: str, answer: Answer) -> None:
        self.asked += 1
        self.cached += answer.cached_tokens > _SHARED_BY_ALL
        self.answers.setdefault(prompt, set()).add(answer.ids)

    def lines(self) -> list[str]:
        """A line per prompt, then the verdict."""
        rows = [f"  {len(found)} distinct: {prompt[:48]!r} ({len(prompt.split())} words)" for prompt, found in self.answers.items()]
        head = f"{self.mode}: {self.trials} trials, {self.cached} of {self.asked} answers on a cached prefix"
        return [head, *rows, f"  {'passed' if self.passed else 'FAILED'}"]


def check(mode: str, ask: Ask, flush: Flush, trials: int, largest_batch: int, seed: int) -> Result:
    """Run one mode. `flush` empties the server's prefix cache."""
    result = Result(mode, trials)
    draw = random.Random(f"{mode} {seed}")
    if mode == "radix_cache":
        _cached_and_not(result, ask, flush, trials, draw)
        return result
    prompts = [_TEXT] if mode == "single" else [" ".join(_TEXT.split()[:words]) for words in _PREFIX_WORDS]
    with ThreadPoolExecutor(largest_batch) as pool:
        for _ in range(trials):
            size = draw.randint(1, largest_batch)
            batch = [draw.choice(prompts) if draw.random() < 0.5 else draw.choice(_STRANGERS) for _ in range(size - 1)]
            batch.insert(draw.randint(0, len(batch)), draw.choice(prompts))
            _note_known(result, prompts, batch, list(pool.map(ask, batch)))
    return result


def _note_known(result: Result, prompts: Sequence[str], batch: Sequence[str], answers: Sequence[Answer]) -> None:
    for prompt, answer in zip(batch, answers, strict=True):
        if prompt in prompts:
            result.note(prompt, answer)


def _cached_and_not(result: Result, ask: Ask, flush: Flush, trials: int, draw: random.Random) -> None:
    words = _TEXT.split()
    for _ in range(trials):
        cut = draw.randint(2, len(words) - 2)
        flush()
        result.note(_TEXT, ask(_TEXT))  # from nothing
        result.note(_TEXT, ask(_TEXT))  # all but one token cached
        flush()
        ask(" ".join(words[:cut]))
        result.note(_TEXT, ask(_TEXT))  # part of it cached
