"""What a grammar backend is, and what the scheduler follows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from services.common.errors import InvalidRequest


class GrammarKind(StrEnum):
    """The four ways to say what output must look like; values are the contract's field names."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    EBNF = "ebnf"
    STRUCTURAL_TAG = "structural_tag"


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """A constraint as the client wrote it. Equal specs share one compiled grammar.

    text_ids: special ids that are shown as text and so count as text where the grammar speaks of text, in order.
    lenient: what of a schema the backend does not enforce is left out instead of refused.
    """

    kind: GrammarKind
    text: str
    text_ids: tuple[int, ...] = ()
    lenient: bool = False


class InvalidGrammar(InvalidRequest):
    """The constraint is wrong, or asks for something that would not be enforced. Names the field and the reason."""

    def __init__(self, reason: str, kind: GrammarKind) -> None:
        super().__init__(f"{kind}: {reason}", field=str(kind))


class TooCostly(InvalidGrammar):
    """Compiling took more time or memory than a constraint may take."""


class GrammarFailure(Exception):
    """A matcher gave up in the middle of an output, for instance because a step would cost too much."""


class Matcher(Protocol):
    """Where one choice's output stands in its grammar. Every method may raise GrammarFailure."""

    def accept(self, token_id: int) -> bool:
        """Advance by one id; false, and nothing changes, if the grammar does not allow it."""

    def fill_mask(self, words: npt.NDArray[np.int32]) -> None:
        """Write the ids allowed next into `words` [ceil(vocab / 32)]: bit i % 32 of word i // 32."""

    def rollback(self, count: int) -> None:
        """Take back the last `count` accepted ids."""

    @property
    def finished(self) -> bool:
        """The output is complete and nothing but an end token may follow, or one has."""

    def forced_text(self) -> str:
        """Text that must come next, whatever is sampled; empty if there is a choice."""

    def forced_ids(self) -> list[int]:
        """Ids that must come next: the forced text as the tokenizer spells it; empty if there is a choice."""


class CompiledGrammar(Protocol):
    """Immutable; shared by all choices with the same spec."""

    @property
    def memory_bytes(self) -> int:
        """Roughly what it occupies."""

    def matcher(self) -> Matcher:
        """A matcher at the start of the grammar."""


class GrammarBackend(Protocol):
    """Turns constraints into grammars over one vocabulary. Used from several threads at once."""

    @property
    def name(self) -> str:
        """As `--grammar-backend` spells it."""

    def check(self, spec: GrammarSpec) -> GrammarSpec:
        """The constraint in the form `compile` takes, cheaply. Raises InvalidGrammar for what would not be enforced."""

    def compile(self, spec: GrammarSpec) -> CompiledGrammar:
        """Compile a checked spec. May take long. Raises InvalidGrammar."""
