"""What a grammar forces, in tokens: the tokenizer's own, never against the grammar, and never across what the model chooses."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from services.common.text.tokenizer_files import TokenizerFiles, load_token_bytes
from services.scheduler.grammar.backends import make_backend
from services.scheduler.grammar.interface import GrammarBackend, GrammarKind, GrammarSpec, InvalidGrammar, Matcher
from services.scheduler.grammar.request_grammar import RequestGrammar
from services.scheduler.grammar.spelling import Spelling, load_encoder
from services.scheduler.grammar.store import GrammarStore
from services.scheduler.grammar.vocabulary import GrammarVocabulary, grammar_vocabulary
from tests.unit.grammar.following import NAMES
from tests.unit.grammar.test_random_schemas import schemas
from tests.unit.grammar.test_store import _until

_TEXTS = [
    '{"customer_name": "Åsa", "delivery_address": "street 12", "status": "completed"}',
    "the status of the customer address 日本 🐈",
] * 9
ADDRESS = {"type": "object", "properties": {"delivery_address": {"type": "integer"}, "status": {"const": "completed"}}}
SCHEMA = json.dumps({**ADDRESS, "required": ["delivery_address", "status"], "additionalProperties": False})


def _save(folder: Path, *, spaces_first: bool) -> Path:
    """A small byte-level tokenizer that has learned a few words; it may put a space before every text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaces_first)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, special_tokens=["<end>"], show_progress=False)
    tokenizer.train_from_iterator(_TEXTS, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> GrammarVocabulary:
    return _vocabulary(_save(tmp_path_factory.mktemp("plain"), spaces_first=False))


def _vocabulary(folder: Path) -> GrammarVocabulary:
    tokens = load_token_bytes(TokenizerFiles(folder, folder / "tokenizer.json"))
    return grammar_vocabulary(tokens, tokens.vocab_size + 5, [0], load_encoder(folder))


@dataclass(frozen=True)
class _Made:
    """A backend over the small tokenizer."""

    vocabulary: GrammarVocabulary
    backend: GrammarBackend

    def matcher(self, kind: GrammarKind, text: str) -> Matcher:
        return self.backend.compile(self.backend.check(GrammarSpec(kind, text))).matcher()

    def grammar(self, regex: str, begin_after_ids: tuple[int, ...] = ()) -> RequestGrammar:
        entry = GrammarStore(self.backend).entry(GrammarSpec(GrammarKind.REGEX, regex))
        _until(lambda: entry.ready)
        return RequestGrammar(entry, begin_after_ids)


@pytest.fixture(scope="module", params=NAMES)
def made(request: pytest.FixtureRequest, vocabulary: GrammarVocabulary) -> _Made:
    return _Made(vocabulary, make_backend(request.param, vocabulary))


def _spelling(vocabulary: GrammarVocabulary) -> Spelling:
    assert vocabulary.spelling is not None
    return vocabulary.spelling


def _text(vocabulary: GrammarVocabulary, ids: Sequence[int]) -> bytes:
    return b"".join(vocabulary.pieces[token] for token in ids)


def _allowed(follower: Matcher, vocabulary: GrammarVocabulary) -> list[int]:
    words = np.zeros(vocabulary.mask_words, np.int32)
    follower.fill_mask(words)
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    return [int(i) for i in np.flatnonzero(bits[: vocabulary.size])]


def test_forced_text_is_spelled_as_the_tokenizer_spells_it(made: _Made) -> None:
    vocabulary, follower = made.vocabulary, made.matcher(GrammarKind.JSON_SCHEMA, SCHEMA)
    for token in _spelling(vocabulary).ids('{"'):
        assert follower.accept(token)
    forced = follower.forced_ids()
    assert forced == list(_spelling(vocabulary).ids("delivery_address"))
    assert len(forced) < len("delivery_address")
    assert follower.forced_ids() == forced  # the matcher stays where it is
    assert all(follower.accept(token) for token in forced)
    assert follower.forced_ids() == []  # `"` or `":`: the model chooses


@pytest.mark.parametrize(
    ("regex", "forced"),
    [
        ("completed", "completed"),
        ("complete(d)?", "complete"),  # a token may reach to the d, and an end may come before it
        ("status (of|the)", "status "),  # ` of` and ` the` are tokens that begin in the forced text
        ("a|b", ""),
        ("(ab)?", ""),
        ("(日本|日木) 🐈", "日"),
        ("ÅsaÅsaÅsa", "ÅsaÅsaÅsa"),
    ],
)
def test_a_token_that_may_reach_beyond_is_not_forced(made: _Made, regex: str, forced: str) -> None:
    vocabulary, follower = made.vocabulary, made.matcher(GrammarKind.REGEX, regex)
    ids, spelled = follower.forced_ids(), list(_spelling(vocabulary).ids(forced)) if forced else []
    assert ids == spelled[: len(ids)]
    rest = forced.encode()[len(_text(vocabulary, ids)) :]
    assert not rest or any(vocabulary.pieces[token].startswith(rest) for token in _after(follower, ids, vocabulary))


def _after(follower: Matcher, ids: list[int], vocabulary: GrammarVocabulary) -> list[int]:
    assert all(follower.accept(token) for token in ids)
    return _allowed(follower, vocabulary)


@settings(max_examples=15, deadline=None)
@given(schema=schemas)
def test_nothing_is_forced_that_the_grammar_leaves_open(made: _Made, schema: object) -> None:
    """Wherever something is forced, all that is allowed instead spells the same text, and no end may come."""
    rng, vocabulary = random.Random(json.dumps(schema)), made.vocabulary
    try:
        follower = made.matcher(GrammarKind.JSON_SCHEMA, json.dumps(schema))
    except InvalidGrammar:
        return
    for _ in range(60):
        if follower.finished:
            break
        forced, allowed = follower.forced_ids(), _allowed(follower, vocabulary)
        text = _text(vocabulary, forced)
        for token in allowed if forced else ():
            piece = vocabulary.pieces[token]
            assert piece, "an end"
            assert text.startswith(piece) or piece.startswith(text)
        token = forced[0] if forced else rng.choice(allowed)
        assert token in allowed
        assert follower.accept(token)


def test_a_tokenizer_that_begins_every_text_with_a_space(tmp_path: Path) -> None:
    vocabulary = _vocabulary(_save(tmp_path, spaces_first=True))
    ids = _spelling(vocabulary).ids('completed", "status')
    assert _text(vocabulary, ids) == b'completed", "status'
    assert len(ids) < 12
    assert _spelling(vocabulary).ids("<end>") not in ((), (0,))  # text, whatever it spells
    assert Spelling(vocabulary.pieces, lambda text: [0, 1]).ids("completed") == ()
    assert Spelling(vocabulary.pieces, lambda text: [10_000]).ids("completed") == ()


def test_pieces_that_go_on() -> None:
    spelling = Spelling([b"a", b"", b"ab", b"a\xff\xff", b"b", b"abc", b"aa"], lambda text: [0])
    assert sorted(spelling.longer(b"a").tolist()) == [2, 3, 5, 6]
    assert sorted(spelling.longer(b"ab").tolist()) == [5]
    assert not spelling.longer(b"abc").size
    assert sorted(spelling.over([b"b", b"ba"]).longer(b"b").tolist()) == [1]


def test_a_choice_follows_what_it_was_forced_to(made: _Made) -> None:
    grammar, vocabulary = made.grammar("completed or status [0-9]"), made.vocabulary
    forced = list(grammar.forced_ids())
    assert _text(vocabulary, forced).startswith(b"completed or statu")
    for place, token in enumerate(forced):
        assert list(grammar.forced_ids()) == forced[place:]
        assert grammar.accept(token)
    other = made.grammar("completed or status [0-9]")
    letters = [vocabulary.pieces.index(bytes([byte])) for byte in b"complete"]
    assert other.forced_ids()[0] not in letters
    assert all(other.accept(token) for token in letters)  # another spelling, as of a resumed answer
    assert _text(vocabulary, list(other.forced_ids())).startswith(b"d or statu")
    late = made.grammar("completed", (7,))
    assert not late.forced_ids()
    assert late.accept(7)
    assert _text(vocabulary, list(late.forced_ids())) == b"completed"
