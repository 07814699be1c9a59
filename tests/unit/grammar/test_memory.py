"""Ever new schemas do not cost memory for good: a grammar that the store drops, and nobody follows, is gone."""

from __future__ import annotations

import gc
import json
import weakref
from concurrent.futures import wait

import pytest

from services.scheduler.grammar.interface import CompiledGrammar, GrammarKind, GrammarSpec
from services.scheduler.grammar.request_grammar import RequestGrammar
from services.scheduler.grammar.store import Entry, GrammarStore
from tests.unit.grammar.following import NAMES, backend

KEPT, SCHEMAS = 5, 25


def _compiled(store: GrammarStore, number: int) -> Entry:
    fields = {f"field_{number}_{place}": {"type": "string", "maxLength": 20 + place} for place in range(3)}
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    entry = store.entry(GrammarSpec(GrammarKind.JSON_SCHEMA, json.dumps(schema)))
    wait([entry.future])
    return entry


@pytest.mark.parametrize("name", NAMES)
def test_schemas_that_come_once_are_forgotten(name: str) -> None:
    store = GrammarStore(backend(name), max_entries=KEPT, compile_limit_s=600)
    seen: list[weakref.ref[CompiledGrammar]] = []
    followed = RequestGrammar(_compiled(store, 0))
    for number in range(SCHEMAS):
        grammar = RequestGrammar(entry := _compiled(store, number))
        assert not grammar.finished
        seen.append(weakref.ref(entry.grammar))
        del grammar, entry
    gc.collect()
    alive = [number for number, grammar in enumerate(seen) if grammar() is not None]
    assert alive == [0, *range(SCHEMAS - KEPT, SCHEMAS)]
    assert not followed.finished
    assert store.bytes_held > 0
    assert _compiled(store, 1).error is None
    del followed
    gc.collect()
    assert seen[0]() is None
