"""Compiled grammars by their text: each compiled once, invalid ones remembered, the least recently used dropped."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from services.common.errors import HeadraceError, Internal
from services.scheduler.grammar.compile_pool import CompilePool, CompileTimeout
from services.scheduler.grammar.interface import CompiledGrammar, GrammarBackend, GrammarSpec, InvalidGrammar, TooCostly

log = logging.getLogger(__name__)


@dataclass(slots=True)
class StoreCounters:
    """Totals since the start. Of lookups: `hits`, `misses`, and `refused` ones; of grammars: `invalid`, `timeouts`, `errors`."""

    hits: int = 0
    misses: int = 0
    refused: int = 0
    invalid: int = 0
    timeouts: int = 0
    errors: int = 0


class Entry:
    """One grammar: being compiled, compiled, or known to be invalid."""

    def __init__(self, spec: GrammarSpec, pool: CompilePool) -> None:
        self.spec = spec
        self._pool = pool
        self.future: Future[CompiledGrammar] = Future()
        self._condemned: InvalidGrammar | None = None

    @property
    def ready(self) -> bool:
        """Whether there is a grammar or an error."""
        if not self.future.done():
            self._pool.expire()
        return self.future.done()

    @property
    def error(self) -> HeadraceError | None:
        """Why there is no grammar; None while it is being compiled or once it is there."""
        if self._condemned is not None:
            return self._condemned
        failure = self.future.exception() if self.future.done() else None
        return failure if failure is None or isinstance(failure, HeadraceError) else Internal(f"grammar: {failure}")

    @property
    def grammar(self) -> CompiledGrammar:
        """The grammar, once ready and without error."""
        return self.future.result(timeout=0)

    def condemn(self, reason: str) -> None:
        """Treat it as invalid from now on, for all who follow it and all who ask for it."""
        self._condemned = TooCostly(reason, self.spec.kind)

    def unless_invalid(self) -> Entry:
        """Itself. Raises InvalidGrammar if that is already known."""
        if self.ready and isinstance(self.error, InvalidGrammar):
            raise self.error
        return self


class GrammarStore:
    """Safe to use from several threads."""

    def __init__(
        self,
        backend: GrammarBackend,
        *,
        threads: int = 2,
        compile_limit_s: float = 10.0,
        max_entries: int = 1000,
        max_bytes: int = 512 << 20,
    ) -> None:
        self.backend = backend
        self.counters = StoreCounters()
        self.on_compiled: Callable[[float], None] = lambda seconds: None
        self._pool = CompilePool(threads, compile_limit_s)
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._entries: OrderedDict[GrammarSpec, Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, spec: GrammarSpec) -> bool:
        return spec in self._entries

    @property
    def bytes_held(self) -> int:
        """Roughly what the grammars occupy."""
        return self._bytes

    @property
    def compiling(self) -> int:
        """Grammars that wait for a thread or are being compiled."""
        return self._pool.waiting

    def entry(self, spec: GrammarSpec, *, again: bool = False) -> Entry:
        """The entry of a constraint; it is checked at once and compiled in the background. Not counted if asked for `again`.

        Raises InvalidGrammar for one that is known or seen to be invalid, Overloaded if the compilers are stuck.
        """
        with self._lock:
            found = self._entries.get(spec)
            if found is not None:
                self._entries.move_to_end(spec)
        known = found is not None
        if found is None:
            found = self._add(spec)
        if not again:
            refused = found.ready and isinstance(found.error, InvalidGrammar)
            self.counters.refused += refused
            self.counters.hits += known and not refused
            self.counters.misses += not known and not refused
        return found.unless_invalid()

    def _add(self, spec: GrammarSpec) -> Entry:
        entry = Entry(spec, self._pool)
        try:
            checked = self.backend.check(spec)
        except InvalidGrammar as error:
            self.counters.invalid += 1
            entry.future.set_exception(error)
            self._remember(entry)
            return entry
        compiling = self._pool.submit(lambda: self._compiled(checked))
        self._remember(entry)
        compiling.add_done_callback(lambda done: self._finish(entry, done))
        return entry

    def _compiled(self, checked: GrammarSpec) -> CompiledGrammar:
        began = time.monotonic()
        grammar = self.backend.compile(checked)
        self.on_compiled(time.monotonic() - began)
        return grammar

    def _finish(self, entry: Entry, done: Future[CompiledGrammar]) -> None:
        error = done.exception()
        if error is None:
            entry.future.set_result(done.result())
        else:
            self._count(error, entry.spec)
            entry.future.set_exception(error if isinstance(error, HeadraceError) else InvalidGrammar(str(error), entry.spec.kind))
        self._remember(entry)

    def _count(self, error: BaseException, spec: GrammarSpec) -> None:
        if isinstance(error, CompileTimeout | TooCostly):
            self.counters.timeouts += 1
        elif isinstance(error, InvalidGrammar):
            self.counters.invalid += 1
        else:
            self.counters.errors += 1
            log.error("grammar compiler failed", extra={"kind": str(spec.kind), "error": repr(error)})

    def _remember(self, entry: Entry) -> None:
        with self._lock:
            self._entries[entry.spec] = entry
            self._entries.move_to_end(entry.spec)
            self._bytes = sum(map(_size, self._entries.values()))
            for spec in list(self._entries):
                if len(self._entries) <= self._max_entries and self._bytes <= self._max_bytes:
                    break
                if self._entries[spec] is not entry and self._entries[spec].future.done():
                    self._bytes -= _size(self._entries.pop(spec))


def _size(entry: Entry) -> int:
    done = entry.future.done() and entry.future.exception() is None
    return len(entry.spec.text) + (entry.grammar.memory_bytes if done else 0)
