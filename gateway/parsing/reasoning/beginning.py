"""Where an answer begins: in a thought, after one, or where only its first words can tell."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.flight.spec import Thought, ThoughtAt

_MOST_AFTER = 2
"""White space that a template writes after a tag is no more tokens than that; what opens a turn always is more."""


def at_end_of(prompt: Sequence[int], thought: Thought, begin: Sequence[int], end: Sequence[int]) -> ThoughtAt:
    """By the tags' ids at the end of the prompt, where templates open a thought or skip it; else as the request says."""
    for behind in range(_MOST_AFTER + 1):
        tail = prompt[: len(prompt) - behind]
        if _ends_with(tail, end):
            return "after"
        if _ends_with(tail, begin):
            return "inside"
    return thought.otherwise


def _ends_with(ids: Sequence[int], tag: Sequence[int]) -> bool:
    return bool(tag) and len(ids) >= len(tag) and list(ids[len(ids) - len(tag) :]) == list(tag)


def in_text(text: str, thought: Thought) -> ThoughtAt:
    """For an answer that goes on from the beginning of one."""
    opened, closed = text.rfind(thought.begin), text.rfind(thought.end)
    if opened > closed:
        return "inside"
    return "after" if closed >= 0 or text.strip() else thought.otherwise
