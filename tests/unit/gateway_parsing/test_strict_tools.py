"""Whatever a strict tool's grammar lets through, its family's parser reads as calls with valid arguments."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

import jsonschema
import numpy as np
import pytest

from gateway.parsing.tools import FAMILIES
from services.common.errors import InvalidRequest
from services.common.text.token_bytes import TokenBytes
from services.scheduler.grammar.backends import make_backend
from services.scheduler.grammar.interface import CompiledGrammar, GrammarBackend, GrammarKind, GrammarSpec, Matcher
from services.scheduler.grammar.vocabulary import grammar_vocabulary
from tests.unit.gateway_parsing.test_tools import found, parse

MARKERS = sorted({marker for family in FAMILIES.values() for marker in family.keep_special})
STARTS = ["<tool_call>\n{", "<|python_tag|>", "[TOOL_CALLS]", '{"name": "', "[f(", "[now()", '"name"', "f[ARGS]", " [{"]
PIECES = [*(bytes([byte]) for byte in range(256)), *(text.encode() for text in [*STARTS, *MARKERS, "<end>"])]
END = len(PIECES) - 1
SPECIAL = {text: END - len(MARKERS) + place for place, text in enumerate(MARKERS)}
TOKENS = TokenBytes(PIECES, special_ids=frozenset({END, *SPECIAL.values()}), added_ids=frozenset())
BACKENDS = ("xgrammar", "llguidance")
NAMES = ("hermes", "llama3", "mistral", "deepseek", "pythonic")

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 4}, "days": {"$ref": "#/$defs/n"}, "unit": {"enum": ["C", "F é"]}},
    "required": ["city", "days"],
    "additionalProperties": False,
    "$defs": {"n": {"type": "integer", "minimum": 0, "maximum": 9}},
}
F: dict[str, Any] = {"name": "f", "parameters": PARAMETERS, "strict": True}
NOW: dict[str, Any] = {"name": "now", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}, "strict": True}
OPTIONAL: dict[str, Any] = {
    "name": "g",
    "parameters": {"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "boolean"}}, "additionalProperties": False},
    "strict": True,
}
LOOSE: dict[str, Any] = {"name": "loose", "parameters": PARAMETERS}
BY_NAME = {function["name"]: function for function in (F, NOW, OPTIONAL, LOOSE)}


@cache
def _backend(name: str) -> GrammarBackend:
    return make_backend(name, grammar_vocabulary(TOKENS, END + 1, [END]))


@cache
def _compiled(backend: str, family: str) -> CompiledGrammar:
    chosen = FAMILIES[family]
    ids = tuple(sorted(SPECIAL[marker] for marker in chosen.keep_special))
    spec = GrammarSpec(GrammarKind.STRUCTURAL_TAG, chosen.structural_tag([F, NOW, OPTIONAL, LOOSE]), ids)
    made = _backend(backend)
    return made.compile(made.check(spec))


def _ids(text: str, family: str) -> list[int]:
    """Bytes, but the family's markers as the one id they are."""
    for marker in FAMILIES[family].keep_special:
        head, found_marker, tail = text.partition(marker)
        if found_marker:
            return [*_ids(head, family), SPECIAL[marker], *_ids(tail, family)]
    return list(text.encode())


def _admits(follower: Matcher, ids: list[int]) -> bool:
    return all(follower.accept(token) for token in ids) and follower.accept(END)


def _wander(follower: Matcher, rng: random.Random) -> str:
    """A random text of the grammar, with a liking for what begins a call; cut off after some hundred tokens."""
    output = b""
    for step in range(300):
        words = np.zeros(-(-len(PIECES) // 32), np.int32)
        follower.fill_mask(words)
        choices = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")[: len(PIECES)]).tolist()
        eager = [choice for choice in choices if 256 <= choice < END]
        ends = END in choices and step > 20 and rng.random() < 0.3
        token = END if ends else rng.choice(eager if eager and rng.random() < 0.6 else choices)
        assert follower.accept(token)
        if token == END:
            break
        output += PIECES[token]
    return output.decode(errors="replace")


ASKED = [("f", {"city": "é", "days": 3}), ("now", {})]
WRITTEN = {
    "hermes": ['Hm.\n<tool_call>\n{"name": "f", "arguments": {"city": "é", "days": 3}}\n</tool_call>\n'
               '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'],
    "llama3": ['{"name": "f", "parameters": {"city": "é", "days": 3}}; {"name": "now", "parameters": {}}',
               '<|python_tag|>{"name": "f", "parameters": {"city": "é", "days": 3}}; {"name": "now", "parameters": {}}'],
    "mistral": ['[TOOL_CALLS][{"name": "f", "arguments": {"city": "é", "days": 3}}, {"name": "now", "arguments": {}}]',
                'Hm. [TOOL_CALLS]f[ARGS]{"city": "é", "days": 3}[TOOL_CALLS]now[ARGS]{}'],
    "deepseek": ['Hm. <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"city": "é", "days": 3}\n```'
                 '<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
                 '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"city": "é", "days": 3}<｜tool▁call▁end｜>'
                 '<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'],
    "pythonic": ['[f(city="é", days=3), now()]'],
}  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", NAMES)
def test_what_the_family_writes_is_allowed_and_wrong_arguments_are_not(backend: str, family: str) -> None:
    grammar = _compiled(backend, family)
    for text in WRITTEN[family]:
        assert _admits(grammar.matcher(), _ids(text, family)), text
        assert found(parse(FAMILIES[family].make(), [text]))[1] == ASKED
        for right, wrong in (('"é"', '"too long"'), ("3", "-1"), ("f", "h")):
            broken = text.replace(right, wrong, 1) if right != "f" else text.replace('"f"', '"h"').replace("f(", "h(").replace("f[", "h[")
            if broken != text:
                assert not _admits(grammar.matcher(), _ids(broken, family)), broken
    assert _admits(grammar.matcher(), list("Plain text, né?".encode()))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", NAMES)
def test_every_answer_parses_into_valid_calls(backend: str, family: str) -> None:
    grammar, calls_seen = _compiled(backend, family), 0
    for seed in range(40):
        text = _wander(grammar.matcher(), random.Random(seed))
        content, calls = found(parse(FAMILIES[family].make(), list(text)))
        calls_seen += len(calls)
        for name, arguments in calls:
            if BY_NAME[name].get("strict"):
                jsonschema.validate(arguments, BY_NAME[name]["parameters"])
        assert not any(marker in content for marker in FAMILIES[family].keep_special)
    assert calls_seen > 10


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "object", "properties": {"a-b": {}}, "required": ["a-b"]},
        {"type": "object", "properties": {"a": {}}, "required": ["b"]},
        {"anyOf": [{"type": "object"}]},
        {"type": "object", "properties": {f"p{place}": {} for place in range(13)}},
    ],
)
def test_what_keyword_arguments_cannot_be_held_to_is_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        FAMILIES["pythonic"].structural_tag([{"name": "f", "parameters": parameters, "strict": True}])
    assert refused.value.field == "tools"
    assert json.loads(FAMILIES["pythonic"].structural_tag([{"name": "f", "parameters": parameters}]))
