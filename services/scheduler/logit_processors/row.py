"""The processor of one running choice, and what it may see."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np

from services.scheduler.logit_processors.interface import LARGEST_LOGIT, FloatRow, IntArray, Processor

log = logging.getLogger(__name__)


class ProcessorFailed(Exception):
    """A processor raised, or left nothing to choose; the message is for the client."""


class RowProcessor:
    """Made at its first use, so that whatever goes wrong goes wrong inside `apply`."""

    def __init__(self, name: str, make: Callable[[], Processor], prompt_ids: IntArray, output_ids: IntArray) -> None:
        self.name = name
        self._make = make
        self._processor: Processor | None = None
        self._prompt = _read_only(prompt_ids)
        self._size = output_ids.size
        self._output = np.zeros(max(64, 2 * self._size), np.int32)
        self._output[: self._size] = output_ids

    def accept(self, token: int) -> None:
        """Note one more token of output."""
        if self._size == self._output.size:
            self._output = np.resize(self._output, 2 * self._size)
        self._output[self._size] = token
        self._size += 1

    def apply(self, logits: FloatRow) -> None:
        """Change `logits` [vocab] in place. Raises ProcessorFailed."""
        try:
            if self._processor is None:
                self._processor = self._make()
            self._processor(logits, self._prompt, _read_only(self._output[: self._size]))
        except Exception as error:
            log.warning("a logit processor failed", exc_info=True, extra={"processor": self.name})
            raise ProcessorFailed(f"custom_logit_processor {self.name!r} failed: {type(error).__name__}") from error
        np.minimum(logits, LARGEST_LOGIT, out=logits)

    def left_nothing(self) -> str:
        """What to say when no id can be chosen."""
        return f"custom_logit_processor {self.name!r} left no token that could follow"


def _read_only(ids: IntArray) -> IntArray:
    view = ids.view()
    view.flags.writeable = False
    return view
