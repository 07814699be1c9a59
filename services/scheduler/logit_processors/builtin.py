"""The processors that come with the worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from services.scheduler.logit_processors.interface import Factory, FloatRow, IntArray, Processor


def allowed_token_ids(params: Mapping[str, Any], vocab_size: int) -> Processor:
    """`{"token_ids": […]}`: no other id can be chosen."""
    barred = np.ones(vocab_size, np.bool_)
    barred[_ids(params, "token_ids", vocab_size)] = False
    _only(params, "token_ids")

    def process(logits: FloatRow, prompt_ids: IntArray, output_ids: IntArray) -> None:
        logits[barred] = -np.inf

    return process


def disallowed_token_ids(params: Mapping[str, Any], vocab_size: int) -> Processor:
    """`{"token_ids": […]}`: none of these can be chosen."""
    ids = _ids(params, "token_ids", vocab_size)
    _only(params, "token_ids")

    def process(logits: FloatRow, prompt_ids: IntArray, output_ids: IntArray) -> None:
        logits[ids] = -np.inf

    return process


def thinking_budget(params: Mapping[str, Any], vocab_size: int) -> Processor:
    """`{"thinking_budget": N, "end_token_ids": […]}`: a thought of N tokens is ended by those ids, one after the other.

    The thought begins with the output; with `start_token_id` only an output or a prompt that has this id is a thought,
    from the last such id of the prompt, or the first of the output, on.
    """
    budget, start = params.get("thinking_budget"), params.get("start_token_id")
    if type(budget) is not int or budget < 0:
        raise ValueError("thinking_budget must be a whole number, at least 0")
    end = _ids(params, "end_token_ids", vocab_size)
    if start is not None and (type(start) is not int or not 0 <= start < vocab_size):
        raise ValueError(f"start_token_id must be an id below {vocab_size}")
    _only(params, "thinking_budget", "end_token_ids", "start_token_id")
    return _ThinkingBudget(budget, end, start)


BUILTIN: Mapping[str, Factory] = {
    "allowed_token_ids": allowed_token_ids,
    "disallowed_token_ids": disallowed_token_ids,
    "thinking_budget": thinking_budget,
}


class _ThinkingBudget:
    """Forces the end of a thought. What it remembers follows from the output, so it may begin in its middle."""

    def __init__(self, budget: int, end: npt.NDArray[np.int64], start: int | None) -> None:
        self._budget, self._end, self._start = budget, end.astype(np.int32), start
        self._begun: int | None = 0 if start is None else None  # output position of the thought's first token
        self._looked = 0  # output tokens that were looked at
        self._ended = False

    def __call__(self, logits: FloatRow, prompt_ids: IntArray, output_ids: IntArray) -> None:
        self._look(prompt_ids, output_ids)
        if self._begun is None or self._ended:
            return
        over = output_ids.size - self._begun - self._budget
        if 0 <= over < self._end.size:
            forced = self._end[over]
            logits[:forced] = -np.inf
            logits[forced + 1 :] = -np.inf
            logits[forced] = 0.0

    def _look(self, prompt_ids: IntArray, output_ids: IntArray) -> None:
        if self._begun is None and self._looked == 0 and self._opened_by(prompt_ids):
            self._begun = 0
        for size in range(self._looked + 1, output_ids.size + 1):
            if self._begun is None and output_ids[size - 1] == self._start:
                self._begun = size
            length = self._end.size
            inside = self._begun is not None and size - self._begun >= length
            self._ended = self._ended or (inside and bool((output_ids[size - length : size] == self._end).all()))
        self._looked = output_ids.size

    def _opened_by(self, prompt_ids: IntArray) -> bool:
        """Whether the prompt ends inside a thought."""
        starts = np.flatnonzero(prompt_ids == self._start)
        if not starts.size:
            return False
        rest, length = prompt_ids[starts[-1] + 1 :], self._end.size
        return not any((rest[at : at + length] == self._end).all() for at in range(rest.size - length + 1))


def _ids(params: Mapping[str, Any], name: str, vocab_size: int) -> npt.NDArray[np.int64]:
    given = params.get(name)
    if not isinstance(given, list) or not given or not all(type(item) is int and 0 <= item < vocab_size for item in given):
        raise ValueError(f"{name} must be an array of ids below {vocab_size} that is not empty")
    return np.array(given, np.int64)


def _only(params: Mapping[str, Any], *known: str) -> None:
    for name in params:
        if name not in known:
            raise ValueError(f"{name[:40]!r} is unknown; {', '.join(known)} can be given")
