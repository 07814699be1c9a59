"""The finish decision, in one fixed order: invalid id, stop text, stop or end token, length, end of grammar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from services.scheduler.core.batch import Batch
from services.scheduler.core.choice import Choice
from services.scheduler.core.messages import FinishReason, Matched
from services.scheduler.core.plan import IntArray


@dataclass(frozen=True, slots=True)
class Stop:
    """Why output ends with the token just seen."""

    reason: FinishReason
    matched: Matched | None = None
    keep_bytes: int | None = None


_LENGTH = Stop(FinishReason.LENGTH)
_GRAMMAR_END = Stop(FinishReason.GRAMMAR_END)
_NOT_ALLOWED = Stop(FinishReason.ERROR)  # a sampled id the grammar had masked out


class StopRules:
    """Decides for whole steps; only rows with stop text, stop ids of their own or a grammar are looked at one by one."""

    def __init__(self, vocab_size: int, eos_ids: Sequence[int]) -> None:
        self._vocab_size = vocab_size
        self._is_eos = np.zeros(vocab_size, np.bool_)
        self._is_eos[[token for token in eos_ids if 0 <= token < vocab_size]] = True

    def valid(self, ids: IntArray) -> npt.NDArray[np.bool_]:
        """[S] whether each id lies in the vocabulary."""
        inside: npt.NDArray[np.bool_] = ids.view(np.uint32) < self._vocab_size  # negative ids come out large
        return inside

    def after_step(self, batch: Batch, rows: IntArray, ids: IntArray) -> list[tuple[int, Stop]]:
        """Rows that end with their new token, which is valid and counted in `out_len` already."""
        out_len = batch.out_len[rows]
        full = out_len >= batch.max_new[rows]
        ended = self._is_eos[ids] & batch.obeys_eos[rows] & (out_len >= batch.min_new[rows])
        watched = batch.watched[rows]
        stops: list[tuple[int, Stop]] = []
        for index in np.flatnonzero(full | ended | watched).tolist():
            row = int(rows[index])
            stop = None
            if watched[index]:
                stop = self.after_token(batch.choice(row), int(ids[index]), int(out_len[index]))
            elif ended[index]:
                stop = Stop(FinishReason.STOP, Matched(token_id=int(ids[index])))
            elif full[index]:
                stop = _LENGTH
            if stop is not None:
                stops.append((row, stop))
        return stops

    def after_token(self, choice: Choice, token: int, out_len: int) -> Stop | None:
        """Feed one token to the choice's matcher and grammar; `out_len` counts it."""
        enough = out_len >= choice.request.stops.min_new_tokens
        grammar_allows = choice.grammar is None or choice.grammar.accept(token)
        hit = choice.matcher.feed((token,)) if choice.matcher else None
        if hit is not None and enough:
            return Stop(FinishReason.STOP, Matched(stop_index=hit.stop_index, regex_index=hit.regex_index), hit.keep_bytes)
        if token in choice.stop_ids and enough:
            return Stop(FinishReason.STOP, Matched(token_id=token))
        if out_len >= choice.max_new:
            return _LENGTH
        if choice.grammar is not None and choice.grammar.finished:
            return _GRAMMAR_END
        return None if grammar_allows else _NOT_ALLOWED
