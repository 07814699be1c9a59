"""Choices that wait, in order of arrival."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from services.scheduler.core.choice import Choice


def arrival_key(choice: Choice) -> tuple[int, int]:
    return choice.arrival_ns, choice.sequence


class WaitingQueue:
    """Sorted by arrival; a retracted choice takes its old place again. `version` changes with the content."""

    def __init__(self) -> None:
        self._choices: list[Choice] = []
        self.tokens = 0  # prompt and output tokens of all that wait
        self.version = 0

    def __len__(self) -> int:
        return len(self._choices)

    def __iter__(self) -> Iterator[Choice]:
        return iter(self._choices)

    def add(self, choice: Choice) -> int:
        """Take a choice in; returns how many wait before it."""
        waiting = self._choices
        last = not waiting or arrival_key(waiting[-1]) < arrival_key(choice)
        index = len(waiting) if last else bisect_left(waiting, arrival_key(choice), key=arrival_key)
        waiting.insert(index, choice)
        self.tokens += choice.fill.size
        self.version += 1
        return index

    def remove(self, choice: Choice) -> None:
        first = self._choices and self._choices[0] is choice
        index = 0 if first else bisect_left(self._choices, arrival_key(choice), key=arrival_key)
        if index == len(self._choices) or self._choices[index] is not choice:
            raise ValueError("the choice does not wait")
        del self._choices[index]
        self.tokens -= choice.fill.size
        self.version += 1
