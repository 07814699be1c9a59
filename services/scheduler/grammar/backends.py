"""Which grammar backend a worker has."""

from __future__ import annotations

from services.scheduler.grammar.interface import CompiledGrammar, GrammarBackend, GrammarSpec, InvalidGrammar
from services.scheduler.grammar.llguidance_backend import LLGuidanceBackend
from services.scheduler.grammar.vocabulary import GrammarVocabulary
from services.scheduler.grammar.xgrammar_backend import XGrammarBackend

BACKENDS = ("xgrammar", "llguidance", "none")
START_ALLOWANCE_S = 60.0
"""Time a compile may take besides, as it may have to start a process first. Backends keep the limit themselves."""


class NoBackend:
    """Refuses every constraint."""

    name = "none"

    def __init__(self, reason: str = "constrained decoding is off here (--grammar-backend none)") -> None:
        self._reason = reason

    def check(self, spec: GrammarSpec) -> GrammarSpec:
        """Refuses."""
        raise InvalidGrammar(self._reason, spec.kind)

    def compile(self, spec: GrammarSpec) -> CompiledGrammar:
        """Refuses."""
        raise InvalidGrammar(self._reason, spec.kind)


def make_backend(
    name: str,
    vocabulary: GrammarVocabulary | None,
    *,
    any_whitespace: bool = True,
    max_whitespace: int | None = None,
    compile_limit_s: float = 10.0,
) -> GrammarBackend:
    """The backend called `name`, ready to compile; without a vocabulary there is none. Its library is imported here."""
    if name == "none":
        return NoBackend()
    if vocabulary is None:
        return NoBackend("constrained decoding needs a tokenizer, which this worker has not")
    if name == "llguidance":
        return LLGuidanceBackend(vocabulary, any_whitespace=any_whitespace, max_whitespace=max_whitespace)
    return XGrammarBackend(vocabulary, any_whitespace=any_whitespace, max_whitespace=max_whitespace, limit_s=compile_limit_s)
