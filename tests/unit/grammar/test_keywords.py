"""No keyword is silently ignored: the table says what becomes of each, and a request that tries to break it shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from services.scheduler.grammar.document import document
from services.scheduler.grammar.interface import GrammarKind, InvalidGrammar
from services.scheduler.grammar.schema.keywords import ANNOTATIONS, KEYWORDS, Handling
from tests.unit.grammar.following import NAMES, admits, compiled, matcher
from tests.unit.grammar.keyword_cases import CASES, Case

DOCUMENT = Path(__file__).parents[3] / "docs" / "json-schema.md"


def _is_accepted(name: str, case: Case) -> bool:
    try:
        matcher(name, GrammarKind.JSON_SCHEMA, json.dumps(case.schema))
    except InvalidGrammar as refused:
        assert refused.message.startswith("json_schema: ")
        assert refused.field == "json_schema"
        return False
    return True


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{json.dumps(case.schema)[:60]}")
def test_what_is_accepted_is_enforced(name: str, case: Case) -> None:
    if not _is_accepted(name, case):
        return
    grammar = compiled(name, GrammarKind.JSON_SCHEMA, json.dumps(case.schema))
    assert [text for text in case.bad if admits(grammar.matcher(), text)] == []
    assert [text for text in case.good if not admits(grammar.matcher(), text)] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_table_tells_the_truth(name: str) -> None:
    """A keyword called enforced is accepted somewhere, one called refused nowhere, and each is tried."""
    accepted: dict[str, bool] = {}
    for case in CASES:
        for keyword in {case.name.split()[0], *(case.schema if isinstance(case.schema, dict) else ())}:
            if case.bad or case.good:
                accepted[keyword] = accepted.get(keyword, False) or _is_accepted(name, case)
    for row in KEYWORDS:
        handling = row.xgrammar if name == "xgrammar" else row.llguidance
        if row.name in ANNOTATIONS or row.name == "nullable":
            continue
        assert accepted[row.name] == (handling is not Handling.REFUSED), row.name


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("schema", ['"oops"', "[]", "3", "{", "", "   ", '{"a": NaN}', "false", '{"minLenght": 3}', "[" * 50_000])
def test_what_is_no_schema(name: str, schema: str) -> None:
    with pytest.raises(InvalidGrammar) as refused:
        matcher(name, GrammarKind.JSON_SCHEMA, schema)
    assert refused.value.field == "json_schema"


def test_a_misspelt_keyword_names_its_neighbour_and_its_place() -> None:
    with pytest.raises(InvalidGrammar, match=r"#/properties/a: unknown keyword 'minLenght'; did you mean 'minLength'\?"):
        matcher("xgrammar", GrammarKind.JSON_SCHEMA, '{"type": "object", "properties": {"a": {"type": "string", "minLenght": 3}}}')


def test_the_document_is_current() -> None:
    assert DOCUMENT.read_text() == document(), "run: python -m services.scheduler.grammar.document > docs/json-schema.md"
