"""Logprobs as `/v1/completions` spells them: parallel lists, and offsets into the text."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import Any

from gateway.api.answers import finite
from gateway.clients.pieces import PieceTable
from gateway.flight.result import TokenLogprob


class CompletionLogprobs:
    """One choice's logprobs; offsets go on from chunk to chunk. hidden: ids that leave no text."""

    def __init__(self, pieces: PieceTable, hidden: frozenset[int]) -> None:
        self._pieces = pieces
        self._hidden = hidden
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = 0

    def skip(self, text: str) -> None:
        """Text that is shown without logprobs."""
        self._offset += len(text)

    def of(self, entries: Sequence[TokenLogprob]) -> dict[str, Any]:
        """The logprobs object of these tokens."""
        tokens, values, tops, offsets = [], [], [], []
        for entry in entries:
            tokens.append(self._text(entry.token_id))
            values.append(finite(entry.logprob))
            tops.append(None if entry.logprob is None else self._top(entry.top))
            offsets.append(self._offset)
            if entry.token_id not in self._hidden:
                self._offset += len(self._decoder.decode(self._pieces.bytes_of(entry.token_id)))
        return {"tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}

    def _top(self, top: Iterable[tuple[int, float]]) -> dict[str, float | None]:
        return {self._text(token): finite(value) for token, value in top}

    def _text(self, token: int) -> str:
        """The token's text, or its bytes where they are no text alone."""
        raw = self._pieces.bytes_of(token)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
