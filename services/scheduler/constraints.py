"""The grammar backend of a worker, loaded with the first request that needs it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

from services.common.text.token_bytes import TokenBytes
from services.scheduler.grammar.backends import START_ALLOWANCE_S, make_backend
from services.scheduler.grammar.compiler_processes import PATIENCE
from services.scheduler.grammar.desk import PATIENCE_S, GrammarDesk
from services.scheduler.grammar.interface import CompiledGrammar, GrammarBackend, GrammarSpec
from services.scheduler.grammar.spelling import load_encoder
from services.scheduler.grammar.store import GrammarStore
from services.scheduler.grammar.vocabulary import grammar_vocabulary

log = logging.getLogger(__name__)


class LazyBackend:
    """Stands for a backend whose library takes a second and much memory to import; most workers never need it."""

    def __init__(self, name: str, make: Callable[[], GrammarBackend]) -> None:
        self.name = name
        self._make = make
        self._backend: GrammarBackend | None = None
        self._lock = threading.Lock()

    @property
    def is_loaded(self) -> bool:
        """Whether `prepare` would return at once."""
        return self._backend is not None

    def prepare(self) -> GrammarBackend:
        """Load it; may be called from any thread, blocks the first time."""
        with self._lock:
            if self._backend is None:
                began = time.monotonic()
                self._backend = self._make()
                log.info("grammar backend loaded", extra={"backend": self.name, "seconds": round(time.monotonic() - began, 2)})
            return self._backend

    def check(self, spec: GrammarSpec) -> GrammarSpec:
        """As the backend's."""
        return self.prepare().check(spec)

    def compile(self, spec: GrammarSpec) -> CompiledGrammar:
        """As the backend's."""
        return self.prepare().compile(spec)


class LazyDesk(GrammarDesk):
    """Loads the backend off the event loop before the first constraint is looked at."""

    def __init__(self, backend: LazyBackend, *, compile_limit_s: float) -> None:
        super().__init__(GrammarStore(backend, compile_limit_s=compile_limit_s))
        self._backend = backend

    async def settle(self, kind: str, text: str, text_ids: Collection[int] = (), *, patience_s: float = PATIENCE_S) -> None:
        if not self._backend.is_loaded:
            await asyncio.to_thread(self._backend.prepare)
        await super().settle(kind, text, text_ids, patience_s=patience_s)


def make_desk(
    name: str,
    tokens: TokenBytes | None,
    tokenizer: Path | None,
    vocab_size: int,
    end_ids: tuple[int, ...],
    *,
    any_whitespace: bool,
    max_whitespace: int,
    compile_limit_s: float,
) -> GrammarDesk:
    """Where constraints are received; without a tokenizer every one is refused. `max_whitespace` below 1 is no bound.

    `tokenizer` is the folder whose tokenizer spells what a constraint forces.
    """

    def make() -> GrammarBackend:
        encode = load_encoder(tokenizer) if tokenizer is not None else None
        vocabulary = grammar_vocabulary(tokens, vocab_size, end_ids, encode) if tokens is not None else None
        most = max_whitespace if max_whitespace > 0 else None
        return make_backend(name, vocabulary, any_whitespace=any_whitespace, max_whitespace=most, compile_limit_s=compile_limit_s)

    return LazyDesk(LazyBackend(name, make), compile_limit_s=PATIENCE * compile_limit_s + START_ALLOWANCE_S)
