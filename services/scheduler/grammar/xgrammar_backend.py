"""Grammars by xgrammar."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from services.scheduler.grammar.checks import checked, satisfiable
from services.scheduler.grammar.compiler_processes import CompilerGone, CompilerProcesses
from services.scheduler.grammar.forced import forced_ids
from services.scheduler.grammar.interface import CompiledGrammar, GrammarKind, GrammarSpec, InvalidGrammar, Matcher, TooCostly
from services.scheduler.grammar.schema.profile import XGRAMMAR
from services.scheduler.grammar.vocabulary import GrammarVocabulary, PerVocabulary

_RESIDENT = 1.7  # bytes the process grows by for each that the library counts, over a thousand schemas


@dataclass(frozen=True, slots=True)
class _Compilers:
    """Compilers over one vocabulary, and what reads their answers."""

    vocabulary: GrammarVocabulary
    info: Any
    processes: CompilerProcesses


class XGrammarBackend:
    """Compiles in processes of their own, which the scheduler survives whatever the grammar."""

    name = "xgrammar"

    def __init__(
        self, vocabulary: GrammarVocabulary, *, any_whitespace: bool = True, max_whitespace: int | None = None, limit_s: float = 10.0
    ) -> None:
        """`any_whitespace` lets the model lay JSON out as it likes, with at most `max_whitespace` characters in a row."""
        import xgrammar

        self._library = xgrammar
        self._limit_s = limit_s
        self._whitespace = {"any_whitespace": any_whitespace, "max_whitespace_cnt": max_whitespace if any_whitespace else None}
        self._compilers = PerVocabulary(vocabulary, self._of)
        self.compile(GrammarSpec(GrammarKind.REGEX, "a"))  # the first request shall not wait for a process to start

    def _of(self, vocabulary: GrammarVocabulary) -> _Compilers:
        ends = list(vocabulary.end_ids)
        info = self._library.TokenizerInfo(
            list(vocabulary.pieces), self._library.VocabType.RAW, vocab_size=vocabulary.size, stop_token_ids=ends
        )
        first = {"pieces": [piece.decode("latin-1") for piece in vocabulary.pieces], "end_ids": ends, "whitespace": self._whitespace}
        return _Compilers(vocabulary, info, CompilerProcesses(first))

    def close(self) -> None:
        """End the compiler processes."""
        for compilers in self._compilers.all():
            compilers.processes.close()

    def check(self, spec: GrammarSpec) -> GrammarSpec:
        """See the interface."""
        return checked(spec, XGRAMMAR)

    def compile(self, spec: GrammarSpec) -> CompiledGrammar:
        """See the interface."""
        compilers = self._compilers.of(spec)
        vocabulary = compilers.vocabulary
        try:
            answer = compilers.processes.compile(str(spec.kind), spec.text, self._limit_s)
        except CompilerGone as gone:
            raise TooCostly(f"{gone} (limit {self._limit_s:g} s, --grammar-compile-timeout)", spec.kind) from gone
        if "costly" in answer:
            raise TooCostly(answer["costly"], spec.kind)
        if "error" in answer:
            raise InvalidGrammar(answer["error"], spec.kind)
        grammar = self._library.CompiledGrammar.deserialize_json(answer["grammar"], compilers.info)
        return satisfiable(XGrammarCompiled(self._library, grammar, vocabulary), vocabulary.mask_words, spec.kind)


class XGrammarCompiled:
    """A compiled grammar of xgrammar's."""

    def __init__(self, library: Any, grammar: Any, vocabulary: GrammarVocabulary) -> None:
        self._library = library
        self._grammar = grammar
        self._vocabulary = vocabulary

    @property
    def memory_bytes(self) -> int:
        """See the interface."""
        return int(self._grammar.memory_size_bytes * _RESIDENT)

    def matcher(self) -> Matcher:
        """See the interface."""
        return XGrammarMatcher(self._library.GrammarMatcher(self._grammar), self._vocabulary)


class XGrammarMatcher:
    """A matcher of xgrammar's that also knows when nothing but an end token may follow."""

    def __init__(self, matcher: Any, vocabulary: GrammarVocabulary) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._words = np.zeros((1, vocabulary.mask_words), np.int32)
        self._ends = _mask_of(vocabulary)
        self._filled = False

    def accept(self, token_id: int) -> bool:
        """See the interface."""
        if self._matcher.is_terminated():
            return False
        accepted = bool(self._matcher.accept_token(token_id))
        self._filled = self._filled and not accepted
        return accepted

    def fill_mask(self, words: npt.NDArray[np.int32]) -> None:
        """See the interface."""
        words[:] = self._ends if self._matcher.is_terminated() else self._mask()

    def _mask(self) -> npt.NDArray[np.int32]:
        if not self._filled:
            self._words.fill(-1)
            self._matcher.fill_next_token_bitmask(self._words)
            self._filled = True
        row: npt.NDArray[np.int32] = self._words[0]
        return row

    def rollback(self, count: int) -> None:
        """See the interface."""
        if count:
            self._matcher.rollback(count)
            self._filled = False

    @property
    def finished(self) -> bool:
        """See the interface."""
        if self._matcher.is_terminated():
            return True
        return bool(self._matcher.is_completed()) and not np.any(self._mask() & ~self._ends)

    def forced_text(self) -> str:
        """See the interface."""
        with contextlib.suppress(RuntimeError):
            return str(self._matcher.find_jump_forward_string())
        return ""

    def forced_ids(self) -> list[int]:
        """See the interface."""
        return forced_ids(self, self._vocabulary)


def _mask_of(vocabulary: GrammarVocabulary) -> npt.NDArray[np.int32]:
    bits = np.zeros(vocabulary.mask_words * 32, np.bool_)
    bits[list(vocabulary.end_ids)] = True
    return np.packbits(bits, bitorder="little").view(np.int32)
