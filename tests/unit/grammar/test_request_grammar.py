"""One choice follows its grammar: when it is ready, after a marker, after a resume, and when it fails."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import pytest

from services.scheduler.grammar.desk import GrammarDesk
from services.scheduler.grammar.interface import GrammarKind, GrammarSpec, TooCostly
from services.scheduler.grammar.request_grammar import RequestGrammar
from services.scheduler.grammar.store import Entry, GrammarStore
from tests.unit.grammar.following import END, NAMES, VOCAB, allowed, backend, compiled, ids_of, matcher
from tests.unit.grammar.test_store import _until

SCHEMA = json.dumps({"type": "object", "properties": {"a": {"type": "integer", "maximum": 9, "minimum": 0}}, "required": ["a"]})


def _made(name: str, kind: str, text: str, begin_after_ids: tuple[int, ...] = ()) -> RequestGrammar:
    grammar = GrammarDesk(GrammarStore(backend(name), compile_limit_s=60)).factory(kind, text, begin_after_ids)()
    _until(lambda: grammar.ready)
    assert grammar.error is None
    return grammar


def _entry() -> Entry:
    return GrammarStore(backend("llguidance")).entry(GrammarSpec(GrammarKind.REGEX, "a"))


def _mask(grammar: RequestGrammar) -> set[int]:
    words = np.zeros(-(-VOCAB // 32), np.int32)
    grammar.fill_mask(words)
    return set(np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")[:VOCAB]).tolist())


@pytest.mark.parametrize("name", NAMES)
def test_it_ends_where_nothing_can_follow(name: str) -> None:
    grammar = _made(name, "json_schema", SCHEMA)
    for token in ids_of('{"a":1'):
        assert not grammar.finished
        assert token in _mask(grammar)
        assert grammar.accept(token)
    assert not grammar.accept(ord("x"))
    assert f"id {ord('x')} is not allowed" in (grammar.error or "")
    assert grammar.accept(ord("}"))
    assert grammar.error is None
    assert grammar.finished
    assert _mask(grammar) == {END}


@pytest.mark.parametrize("name", NAMES)
def test_an_open_end_waits_for_the_end_token(name: str) -> None:
    grammar = _made(name, "regex", "a+")
    assert END not in _mask(grammar)
    assert not grammar.accept(END)
    assert grammar.accept(ord("a"))
    assert {ord("a"), END} <= _mask(grammar)
    assert not grammar.finished
    assert grammar.accept(END)
    assert grammar.finished
    assert not grammar.accept(ord("a"))


@pytest.mark.parametrize("name", NAMES)
def test_it_begins_after_a_marker(name: str) -> None:
    grammar = _made(name, "regex", "a", (7, 8))
    for token in (7, 7, 9, 8, 7):
        assert len(_mask(grammar)) == VOCAB
        assert grammar.accept(token)
        assert not grammar.finished
    assert grammar.accept(8)
    assert _mask(grammar) == {ord("a")}
    assert grammar.accept(ord("a"))
    assert grammar.finished


def test_output_that_came_before_the_grammar_is_followed_up() -> None:
    grammar = RequestGrammar(entry := _entry())
    assert grammar.accept(ord("a"))
    _until(lambda: entry.ready)
    assert grammar.finished
    wrong = RequestGrammar(entry)
    wrong._early = [ord("b")]
    assert not wrong.finished
    assert wrong.error == "the output so far does not follow the grammar"


def test_a_failed_grammar_lets_no_token_pass() -> None:
    clock = iter(range(0, 1000, 3))
    grammar = RequestGrammar(entry := _entry(), clock=lambda: float(next(clock)))
    _until(lambda: entry.ready)
    [token] = _mask(grammar)
    assert "too much time" in (grammar.error or "")
    assert not grammar.accept(token)
    assert not grammar.finished
    with pytest.raises(TooCostly, match="too much time"):
        entry.unless_invalid()
    assert "too much time" in (RequestGrammar(entry).error or "")


def test_a_cost_that_grows_is_noticed_when_it_has_grown() -> None:
    """A long cheap beginning buys no dear end: after it, a mean is that of the last tokens."""
    now = 0.0
    grammar = RequestGrammar(entry := _entry(), clock=lambda: now)
    _until(lambda: entry.ready)
    taken = 0

    class Growing:
        finished = False

        def accept(self, token_id: int) -> bool:
            return True

        def fill_mask(self, words: npt.NDArray[np.int32]) -> None:
            nonlocal now
            words[:] = -1
            now += 0.05 if taken >= 1000 else 0.0

        def forced_ids(self) -> list[int]:
            return []

    grammar._matcher = Growing()  # type: ignore[assignment]
    while grammar.error is None:
        _mask(grammar)
        assert grammar.accept(ord("a")) or grammar.error
        taken += 1
    assert 1000 < taken < 1010
    assert now < 0.5


@pytest.mark.parametrize("name", NAMES)
def test_rollback(name: str) -> None:
    follower = matcher(name, GrammarKind.JSON_SCHEMA, SCHEMA)
    masks = []
    tokens = [*ids_of('{"a":1}'), END]
    for token in tokens:
        masks.append(allowed(follower))
        assert follower.accept(token)
    for count in (1, 2, 4):
        follower.rollback(count)
        at = len(tokens) - count
        assert allowed(follower) == masks[at]
        for token in tokens[at:]:
            assert follower.accept(token)
        assert follower.finished


@pytest.mark.parametrize("name", NAMES)
def test_forced_text(name: str) -> None:
    follower = matcher(name, GrammarKind.REGEX, "hello (world|there)")
    assert follower.forced_text() == "hello "
    for token in ids_of("hello w"):
        follower.accept(token)
    assert follower.forced_text() == "orld"


@pytest.mark.parametrize("name", NAMES)
def test_matchers_of_one_grammar_are_independent(name: str) -> None:
    grammar = compiled(name, GrammarKind.REGEX, "ab|cd")
    one, other = grammar.matcher(), grammar.matcher()
    assert one.accept(ord("a"))
    assert allowed(one) == [ord("b")]
    assert {ord("a"), ord("c")} <= set(allowed(other))


@pytest.mark.parametrize("name", NAMES)
def test_ebnf_and_structural_tags(name: str) -> None:
    follower = matcher(name, GrammarKind.EBNF, 'root ::= "x" digit+\ndigit ::= [0-9]')
    assert all(follower.accept(token) for token in ids_of("x12"))
    structure = {"begin": "<f>", "schema": json.loads(SCHEMA), "end": "</f>"}
    tag = json.dumps({"type": "structural_tag", "structures": [structure], "triggers": ["<f>"]})
    follower = matcher(name, GrammarKind.STRUCTURAL_TAG, tag)
    assert all(follower.accept(token) for token in ids_of('free text <f>{"a":1}</f> more'))
    follower = matcher(name, GrammarKind.STRUCTURAL_TAG, tag)
    assert not all(follower.accept(token) for token in ids_of('free text <f>{"b"'))


@pytest.mark.parametrize("name", NAMES)
def test_an_output_that_does_not_open_a_thought_follows_the_grammar_from_the_start(name: str) -> None:
    opening, closing = ord("<"), ord(">")
    second = ord("t")

    def made() -> RequestGrammar:
        desk = GrammarDesk(GrammarStore(backend(name), compile_limit_s=60))
        grammar = desk.factory("json_schema", SCHEMA, (closing,), (), (opening, second))()
        _until(lambda: grammar.ready)
        return grammar

    def made_with(grammar: RequestGrammar, token: int) -> RequestGrammar:
        assert grammar.accept(token)
        return grammar

    thinking = made()
    assert opening in _mask(thinking) and ord("{") in _mask(thinking)
    assert ord("x") not in _mask(thinking)
    assert thinking.accept(opening)
    assert _mask(thinking) == {second}
    assert not made_with(made(), opening).accept(ord("x"))
    assert thinking.accept(second)
    assert {ord("x"), END} <= _mask(thinking)
    assert all(thinking.accept(token) for token in ids_of("hm {>"))
    assert ord("x") not in _mask(thinking) and opening not in _mask(thinking)
    assert all(thinking.accept(token) for token in ids_of('{"a":1}')) and thinking.finished
    direct = made()
    assert all(direct.accept(token) for token in ids_of('{"a":1}')) and direct.finished
    assert not made().accept(ord("x"))
