"""Where requests with a constraint are received."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from services.scheduler.grammar.interface import GrammarKind, GrammarSpec
from services.scheduler.grammar.request_grammar import RequestGrammar
from services.scheduler.grammar.store import Entry, GrammarStore

_INLINE_CHARACTERS = 4096


class GrammarDesk:
    """Makes one grammar object per choice from a constraint of the contract."""

    def __init__(self, store: GrammarStore) -> None:
        self.store = store

    def factory(self, kind: str, text: str, begin_after_ids: Sequence[int] = ()) -> Callable[[], RequestGrammar]:
        """After `settle`. `kind` is the contract's field name. Raises InvalidRequest naming it for a constraint seen to be invalid."""
        entry = self.store.entry(GrammarSpec(GrammarKind(kind), text), again=True)
        return lambda: RequestGrammar(entry, begin_after_ids)

    async def settle(self, kind: str, text: str, patience_s: float = 0.25) -> None:
        """Give a constraint a moment to turn out invalid, without holding up the loop; then `factory` says so at once.

        Raises InvalidRequest as `factory` does. A grammar that takes longer is compiled on while its request waits.
        """
        spec = GrammarSpec(GrammarKind(kind), text)
        entry = await self._entry(spec)
        if not entry.ready:
            await asyncio.wait([asyncio.wrap_future(entry.future)], timeout=patience_s)
        entry.unless_invalid()

    async def _entry(self, spec: GrammarSpec) -> Entry:
        if len(spec.text) <= _INLINE_CHARACTERS:
            return self.store.entry(spec)
        return await asyncio.to_thread(self.store.entry, spec)
