"""The bytes of single tokens, for logprobs: asked of the detokenizer once and remembered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from gateway.clients.text_stage import TextPool
from services.common.errors import Unavailable

_IDS_PER_QUERY = 8_192
_MOST_KEPT = 1 << 18
_MOST_TABLES = 32
_PAUSE_S = 0.25


class PieceTables:
    """A table for each vocabulary. digest_of: model → digest of its vocabulary, empty if that is not known.

    hold_s: how long a question waits for a detokenizer that is starting again, as texts do.
    """

    def __init__(self, pool: TextPool, digest_of: Callable[[str], str], *, hold_s: float) -> None:
        self._pool = pool
        self._digest_of = digest_of
        self._hold_s = hold_s
        self._tables: dict[str, PieceTable] = {}

    def of(self, model: str) -> PieceTable:
        """The table of a model's vocabulary; models may share one."""
        digest = self._digest_of(model)
        if digest not in self._tables:
            if len(self._tables) >= _MOST_TABLES:
                self._tables.clear()
            self._tables[digest] = PieceTable(self._pool, digest, hold_s=self._hold_s)
        return self._tables[digest]


class PieceTable:
    """Token id to bytes of one vocabulary, as it stands in the middle of a text."""

    def __init__(self, pool: TextPool, digest: str, *, hold_s: float) -> None:
        self._pool = pool
        self._digest = digest
        self._hold_s = hold_s
        self._known: dict[int, bytes] = {}

    def bytes_of(self, token_id: int) -> bytes:
        """The bytes of an id that `ensure` was asked for."""
        return self._known.get(token_id, b"")

    def text_of(self, token_id: int) -> str:
        """The same as text; bytes that are no character become U+FFFD."""
        return self.bytes_of(token_id).decode("utf-8", "replace")

    async def ensure(self, ids: Iterable[int]) -> None:
        """Return once all ids are known. Raises Unavailable if no detokenizer answers in time."""
        wanted = set(ids)
        if len(self._known) + len(wanted) > _MOST_KEPT:
            self._known.clear()
        missing = [token for token in wanted if token not in self._known]
        for at in range(0, len(missing), _IDS_PER_QUERY):
            part = missing[at : at + _IDS_PER_QUERY]
            self._known.update(zip(part, await self._ask(part), strict=True))

    async def _ask(self, ids: list[int]) -> list[bytes]:
        deadline = time.monotonic() + self._hold_s
        while True:
            session = self._pool.connected(self._digest)
            if session is not None:
                try:
                    return await session.ask_pieces(ids)
                except Unavailable:
                    pass
            if time.monotonic() >= deadline:
                break
            await asyncio.sleep(_PAUSE_S)
        raise Unavailable("the detokenizer does not answer", code="detokenizer")
