"""A listener that hands events on only when the texts of their tokens are known: for streams with logprobs."""

from __future__ import annotations

import asyncio

from gateway.api.answers import ids_in
from gateway.clients.pieces import PieceTable
from gateway.flight.choice import Choice
from gateway.flight.flight import Listener


class Later:
    """Keeps the order of events. `run` delivers until `end`."""

    def __init__(self, inner: Listener, pieces: PieceTable) -> None:
        self._inner = inner
        self._pieces = pieces
        self._queue: asyncio.Queue[tuple[Choice, str | None, int] | None] = asyncio.Queue()
        self._known: dict[Choice, int] = {}

    def text(self, choice: Choice, piece: str) -> None:
        """See Listener."""
        self._queue.put_nowait((choice, piece, choice.through))

    def finished(self, choice: Choice) -> None:
        """See Listener."""
        self._queue.put_nowait((choice, None, choice.through))

    def end(self) -> None:
        """No more events."""
        self._queue.put_nowait(None)

    async def run(self) -> None:
        """Deliver. A choice's `through` is shown to the inner listener as it was at the event."""
        while (item := await self._queue.get()) is not None:
            choice, piece, through = item
            at = self._known.get(choice, 0)
            if not at:
                await self._pieces.ensure(ids_in(choice.flight.prompt_logprobs))
            await self._pieces.ensure(ids_in(choice.logprobs[at:]))
            self._known[choice] = len(choice.logprobs)
            latest, choice.through = choice.through, through
            try:
                if piece is None:
                    self._inner.finished(choice)
                else:
                    self._inner.text(choice, piece)
            finally:
                choice.through = max(latest, through)
