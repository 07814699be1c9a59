"""Where requests with a constraint are received."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from services.scheduler.grammar.interface import GrammarKind, GrammarSpec
from services.scheduler.grammar.request_grammar import RequestGrammar
from services.scheduler.grammar.store import Entry, GrammarStore

PATIENCE_S = 3.0
"""It costs nobody anything: no token can come before the grammar is there, and until then a wrong one is a clean refusal."""
_INLINE_CHARACTERS = 1024
_LENIENT = "lenient_"  # as the contract calls the lenient forms of its kinds


class GrammarDesk:
    """Makes one grammar object per choice from a constraint of the contract."""

    def __init__(self, store: GrammarStore) -> None:
        self.store = store

    def factory(
        self,
        kind: str,
        text: str,
        begin_after_ids: Sequence[int] = (),
        text_ids: Collection[int] = (),
        opening_ids: Sequence[int] = (),
    ) -> Callable[[], RequestGrammar]:
        """After `settle`. `kind` is the contract's field name, `text_ids` are special ids that are shown as text.

        Raises InvalidRequest naming the field for a constraint seen to be invalid.
        """
        entry = self.store.entry(_spec(kind, text, text_ids), again=True)
        return lambda: RequestGrammar(entry, begin_after_ids, opening_ids)

    async def settle(self, kind: str, text: str, text_ids: Collection[int] = (), *, patience_s: float = PATIENCE_S) -> None:
        """Give a constraint a moment to turn out invalid, without holding up the loop; then `factory` says so at once.

        Raises InvalidRequest as `factory` does. A grammar that takes longer is compiled on while its request waits.
        """
        entry = await self._entry(_spec(kind, text, text_ids))
        if not entry.ready:
            await asyncio.wait([asyncio.wrap_future(entry.future)], timeout=patience_s)
        entry.unless_invalid()

    async def _entry(self, spec: GrammarSpec) -> Entry:
        if len(spec.text) <= _INLINE_CHARACTERS:
            return self.store.entry(spec)
        return await asyncio.to_thread(self.store.entry, spec)


def _spec(kind: str, text: str, text_ids: Collection[int]) -> GrammarSpec:
    """Special tokens are text only where free text stands beside a grammar; a JSON string is never made of them."""
    grammar = GrammarKind(kind.removeprefix(_LENIENT))
    free_text = grammar is GrammarKind.STRUCTURAL_TAG
    return GrammarSpec(grammar, text, tuple(sorted(text_ids)) if free_text else (), lenient=kind.startswith(_LENIENT))
