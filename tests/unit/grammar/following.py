"""Helpers that follow grammars over a small vocabulary: all bytes, and some longer tokens."""

from __future__ import annotations

import random
from functools import cache

import numpy as np

from services.common.text.token_bytes import TokenBytes
from services.scheduler.grammar.backends import make_backend
from services.scheduler.grammar.interface import CompiledGrammar, GrammarBackend, GrammarKind, GrammarSpec, Matcher
from services.scheduler.grammar.vocabulary import grammar_vocabulary

WORDS = [b'{"', b'":', b'", "', b"true", b"null", b"12", b"ab", "é".encode(), "東".encode(), b'"}', b"  ", b"\n"]
END = 256 + len(WORDS)
TOKENS = TokenBytes([*(bytes([b]) for b in range(256)), *WORDS, b"<end>"], special_ids=frozenset({END}), added_ids=frozenset({END}))
VOCAB = END + 7  # padded, as models' outputs are
NAMES = ("xgrammar", "llguidance")


@cache
def backend(name: str) -> GrammarBackend:
    return make_backend(name, grammar_vocabulary(TOKENS, VOCAB, [END]))


def compiled(name: str, kind: GrammarKind, text: str) -> CompiledGrammar:
    made = backend(name)
    return made.compile(made.check(GrammarSpec(kind, text)))


def matcher(name: str, kind: GrammarKind, text: str) -> Matcher:
    return compiled(name, kind, text).matcher()


def ids_of(text: str) -> list[int]:
    return list(text.encode())


def admits(start: Matcher, text: str) -> bool:
    """Whether the grammar allows exactly this text and then an end."""
    return all(start.accept(token) for token in ids_of(text)) and start.accept(END)


def allowed(follower: Matcher) -> list[int]:
    words = np.zeros(-(-VOCAB // 32), np.int32)
    follower.fill_mask(words)
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    return [int(i) for i in np.flatnonzero(bits[:VOCAB])]


def wander(follower: Matcher, rng: random.Random, *, most: int = 400) -> str | None:
    """A random text the grammar allows, sampled through its masks; None if it did not end in time."""
    output = b""
    for step in range(most):
        choices = allowed(follower)
        assert choices, f"nothing is allowed after {output!r}"
        token = END if END in choices and (len(choices) == 1 or step > 60 or rng.random() < 0.3) else rng.choice(choices)
        assert follower.accept(token), f"id {token} is in the mask after {output!r}, but not accepted"
        if token == END:
            return output.decode(errors="replace")
        output += TOKENS.pieces[token]
        if follower.finished:
            return output.decode(errors="replace")
    return None
