"""Tokens that come next whatever the model prefers: where the grammar leaves one text, its tokens are not left to choice either."""

from __future__ import annotations

import numpy as np

from services.scheduler.grammar.interface import Matcher
from services.scheduler.grammar.spelling import Spelling
from services.scheduler.grammar.vocabulary import GrammarVocabulary

_MOST_CHARACTERS = 256  # looked at in one go; what follows is looked at when these are through


def forced_ids(matcher: Matcher, vocabulary: GrammarVocabulary) -> list[int]:
    """The forced text at the matcher's place in tokens, up to where a token might reach beyond it; may be empty.

    A token that begins in the forced text and ends in what the model chooses stays its choice, and so does all of the
    forced text that such a token would cover: a model that learned `":` as one token is never made to write `"`.
    The matcher ends where it began.
    """
    spelling = vocabulary.spelling
    if spelling is None:
        return []
    text = matcher.forced_text()[:_MOST_CHARACTERS]
    taken: list[int] = []
    rest = text.encode()
    for token_id in spelling.ids(text) if text else ():
        if _reaches_beyond(matcher, spelling, rest, vocabulary.mask_words) or not matcher.accept(token_id):
            break
        taken.append(token_id)
        rest = rest[len(spelling.piece(token_id)) :]
    matcher.rollback(len(taken))
    return taken


def _reaches_beyond(matcher: Matcher, spelling: Spelling, rest: bytes, words: int) -> bool:
    """Whether the grammar allows a token here that begins with all of `rest` and goes on."""
    longer = spelling.longer(rest)
    if not longer.size:
        return False
    mask = np.zeros(words, np.int32)
    matcher.fill_mask(mask)
    return bool((mask[longer // 32] >> (longer % 32) & 1).any())
