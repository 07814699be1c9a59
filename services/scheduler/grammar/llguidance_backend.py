"""Grammars by llguidance."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from services.scheduler.core.token_mask import allow
from services.scheduler.grammar.checks import checked, satisfiable
from services.scheduler.grammar.forced import forced_ids
from services.scheduler.grammar.interface import (
    CompiledGrammar,
    GrammarFailure,
    GrammarKind,
    GrammarSpec,
    InvalidGrammar,
    Matcher,
    TooCostly,
)
from services.scheduler.grammar.probe import too_costly
from services.scheduler.grammar.schema.profile import LLGUIDANCE
from services.scheduler.grammar.tag_lark import TagLark
from services.scheduler.grammar.vocabulary import GrammarVocabulary, PerVocabulary

_GOOD_ENDS = ("NoExtension", "NoExtensionBias", "EndOfSentence")
_LEAST_BYTES, _BYTES_PER_CHARACTER = 160 << 10, 16  # as measured: the library does not say what a grammar occupies


class _Tokenizer:
    """What the library asks of a tokenizer."""

    def __init__(self, vocabulary: GrammarVocabulary) -> None:
        special = dict(vocabulary.special)
        self.eos_token_id = vocabulary.end_ids[0] if vocabulary.end_ids else 0
        self.bos_token_id = None
        self.tokens = [special.get(token_id, piece) for token_id, piece in enumerate(vocabulary.pieces)]
        self.special_token_ids = sorted(special)

        self._id_of = {piece: token_id for token_id, piece in reversed(list(enumerate(vocabulary.pieces))) if piece}
        self._longest = max(map(len, self._id_of), default=1)

    def __call__(self, text: str | bytes) -> list[int]:
        """Ids of a text that must come next, the longest piece first; the library wants them to be sure of it."""
        data = text.encode() if isinstance(text, str) else text
        ids: list[int] = []
        at = 0
        while at < len(data):
            width = next((n for n in range(min(self._longest, len(data) - at), 0, -1) if data[at : at + n] in self._id_of), 0)
            if not width:
                break
            ids.append(self._id_of[data[at : at + width]])
            at += width
        return ids


class LLGuidanceBackend:
    """Refuses by itself what it does not enforce; its fuel limits bound the cost of every step."""

    name = "llguidance"

    def __init__(self, vocabulary: GrammarVocabulary, *, any_whitespace: bool = True, max_whitespace: int | None = None) -> None:
        """`any_whitespace` lets the model lay JSON out as it likes, with at most `max_whitespace` characters in a row."""
        import llguidance

        self._library = llguidance
        # half of the library's own limits or less: they bound what one step of one request costs all others
        self._limits = llguidance.LLParserLimits(step_max_items=10_000, step_lexer_fuel=100_000, max_items_in_row=1000)
        self._options: Any = {"whitespace_flexible": any_whitespace}
        if any_whitespace and max_whitespace is not None:
            self._options["whitespace_pattern"] = rf"[\x20\x0A\x0D\x09]{{1,{max_whitespace}}}"
        self._tokenizers = PerVocabulary(vocabulary, self._of)

    def _of(self, vocabulary: GrammarVocabulary) -> tuple[GrammarVocabulary, Any]:
        wrapped = self._library.TokenizerWrapper(_Tokenizer(vocabulary))
        return vocabulary, self._library.LLTokenizer(wrapped, n_vocab=vocabulary.size, eos_token=list(vocabulary.end_ids) or None)

    def check(self, spec: GrammarSpec) -> GrammarSpec:
        """See the interface."""
        return checked(spec, LLGUIDANCE)

    def compile(self, spec: GrammarSpec) -> CompiledGrammar:
        """See the interface."""
        vocabulary, tokenizer = self._tokenizers.of(spec)
        try:
            grammar = self._grammar(spec)
        except (ValueError, TypeError) as error:
            raise InvalidGrammar(str(error), spec.kind) from error
        matcher = self._library.LLMatcher(tokenizer, grammar, log_level=0, limits=self._limits)
        if matcher.is_error():
            raise InvalidGrammar(str(matcher.get_error()).split("<state>")[0].strip(), spec.kind)
        compiled = LLGuidanceCompiled(matcher, _LEAST_BYTES + len(grammar) * _BYTES_PER_CHARACTER, vocabulary)
        satisfiable(compiled, vocabulary.mask_words, spec.kind)
        try:
            costly = too_costly(compiled.matcher, vocabulary.mask_words)
        except GrammarFailure as failure:
            raise TooCostly(str(failure), spec.kind) from failure
        if costly:
            raise TooCostly("following it costs too much time per token", spec.kind)
        return compiled

    def _grammar(self, spec: GrammarSpec) -> str:
        match spec.kind:
            case GrammarKind.JSON_SCHEMA:
                return str(self._library.LLMatcher.grammar_from_json_schema(spec.text, overrides=self._options))
            case GrammarKind.REGEX:
                return str(self._library.LLMatcher.grammar_from_regex(spec.text))
            case GrammarKind.EBNF:
                return str(self._library.grammar_from("ebnf", spec.text))
            case GrammarKind.STRUCTURAL_TAG:
                return str(self._library.grammar_from("lark", TagLark(self._options).grammar(json.loads(spec.text))))


class LLGuidanceCompiled:
    """A grammar of llguidance's, as a matcher at its start from which others are copied."""

    def __init__(self, start: Any, memory_bytes: int, vocabulary: GrammarVocabulary) -> None:
        self._start = start
        self._memory_bytes = memory_bytes
        self._vocabulary = vocabulary

    @property
    def memory_bytes(self) -> int:
        """See the interface."""
        return self._memory_bytes

    def matcher(self) -> Matcher:
        """See the interface."""
        return LLGuidanceMatcher(self._start.deep_copy(), self._vocabulary)


class LLGuidanceMatcher:
    """A matcher of llguidance's. An id is tried before it is taken, as a wrong one would break the matcher for good."""

    def __init__(self, matcher: Any, vocabulary: GrammarVocabulary) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._words = vocabulary.mask_words
        self._end_ids = frozenset(vocabulary.end_ids)
        self._ended = 0  # end ids taken after the grammar was complete

    def accept(self, token_id: int) -> bool:
        """See the interface."""
        if self._ended:
            return False
        if token_id in self._end_ids:
            self._ended = int(self._matcher.is_accepting())
            return bool(self._ended)
        return self._matcher.validate_tokens([token_id]) == 1 and bool(self._matcher.consume_token(token_id))

    def fill_mask(self, words: npt.NDArray[np.int32]) -> None:
        """See the interface."""
        words[:] = 0
        if not self._matcher.is_stopped():
            words[:] = np.frombuffer(self._matcher.compute_bitmask(), np.int32)[: self._words]
        self._check()
        if self._matcher.is_accepting():
            allow(words, self._end_ids)

    def rollback(self, count: int) -> None:
        """See the interface."""
        taken = count - self._ended
        self._ended = 0 if count else self._ended
        if taken > 0:
            self._matcher.rollback(taken)

    @property
    def finished(self) -> bool:
        """See the interface."""
        self._check()
        return bool(self._ended) or bool(self._matcher.is_stopped())

    def _check(self) -> None:
        if self._matcher.is_error() and self._matcher.stop_reason() not in _GOOD_ENDS:
            raise GrammarFailure(str(self._matcher.get_error()).split("<state>")[0].strip())

    def forced_text(self) -> str:
        """See the interface."""
        return bytes(self._matcher.compute_ff_bytes()).decode(errors="ignore")

    def forced_ids(self) -> list[int]:
        """See the interface."""
        return forced_ids(self, self._vocabulary)
