"""What the scheduler asks of objects that know text and grammars; the composition root supplies them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt


class StopHit(Protocol):
    """A stop string or regex that completed."""

    @property
    def token_index(self) -> int:
        """Index, among the ids of this `feed`, of the token that completed the match."""

    @property
    def stop_index(self) -> int | None:
        """Index of the stop string, None for a regex."""

    @property
    def regex_index(self) -> int | None:
        """Index of the regex, None for a string."""

    @property
    def keep_bytes(self) -> int:
        """Bytes of raw output before the match."""


class StopMatcher(Protocol):
    """Watches one choice's output for stop strings and regexes; one object per choice."""

    def feed(self, ids: Sequence[int]) -> StopHit | None:
        """Take new output ids in order; the earliest match they complete, if any."""


class Grammar(Protocol):
    """State of one choice's constraint."""

    @property
    def ready(self) -> bool:
        """False while the grammar is being compiled; the choice waits, other work goes on."""

    @property
    def error(self) -> str | None:
        """Why there is no grammar to follow (any more); the choice ends with it."""

    @property
    def error_field(self) -> str:
        """Field of the request that `error` is about; may be empty."""

    @property
    def finished(self) -> bool:
        """True once the output is complete and nothing may follow."""

    def fill_mask(self, words: npt.NDArray[np.int32]) -> None:
        """Write the allowed next ids into `words` [ceil(vocab / 32)]; bit i of word i // 32."""

    def accept(self, token_id: int) -> bool:
        """Advance by one id; false if the grammar does not allow it."""

    def forced_ids(self) -> Sequence[int]:
        """Ids that come next, one after the other, whatever the model prefers; empty where it has a choice."""
