"""Constraints of a folder are compiled before the worker is ready; a file that is no constraint stops the start by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.api.schema.limits import Defaults
from gateway.api.schema.reader import Fields
from gateway.api.schema.response_format import read_response_format
from services.common.config import ConfigError
from services.scheduler.grammar.desk import GrammarDesk
from services.scheduler.grammar.interface import GrammarBackend
from services.scheduler.grammar.store import GrammarStore
from services.scheduler.grammar.warm import warm
from tests.unit.grammar.following import NAMES, backend
from tests.unit.grammar.test_store import SlowBackend

SCHEMA = {"type": "object", "properties": {"naïve": {"type": "boolean"}}, "required": ["naïve"]}
REGEX = "[0-9]{4}-[0-9]{2}"
EBNF = 'root ::= "yes" | "no"\n'


def _folder(path: Path) -> Path:
    (path / "answer.json").write_text(json.dumps(SCHEMA, indent=2) + "\n")
    (path / "month.regex").write_text(REGEX + "\n")
    (path / "choice.ebnf").write_text(EBNF)
    (path / "README.md").write_text("not a constraint")
    (path / "old.json").mkdir()
    return path


@pytest.mark.parametrize("name", NAMES)
async def test_the_first_request_finds_it_compiled(name: str, tmp_path: Path) -> None:
    desk = GrammarDesk(GrammarStore(backend(name)))
    assert warm(desk.store, _folder(tmp_path)) == 3
    counters = desk.store.counters
    assert (counters.hits, counters.misses, desk.store.compiling) == (0, 0, 0)
    given = {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}}
    sent = read_response_format(Fields(given), Defaults(model="m"))
    assert sent is not None
    asked = [
        (sent.kind, sent.text),
        ("json_schema", json.dumps(SCHEMA, indent=2)),
        ("regex", REGEX),
        ("ebnf", EBNF),
        ("ebnf", EBNF.rstrip()),
    ]
    for kind, text in asked:
        await desk.settle(kind, text, patience_s=0)
        assert desk.factory(kind, text)().ready
    assert (counters.hits, counters.misses) == (len(asked), 0)


BAD = [
    ("a.json", b"{", "Expecting property name"),
    ("a.json", b"[" * 100_000, "recursion"),
    ("a.json", b'{"type": "strng"}', "strng"),
    ("a.json", b'{"type": "string", "contentSchema": {}, "pattern": "("}', "pattern|contentSchema"),
    ("a.regex", b"(", "regex"),
    ("a.regex", b"", "empty"),
    ("a.regex", b"\xff", "utf-8"),
    ("a.ebnf", b"root ::= (", "ebnf"),
]


@pytest.mark.parametrize(("name", "content", "reason"), BAD)
def test_a_bad_file_stops_the_start(name: str, content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "z.regex").write_text("good")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=reason) as error:
        warm(GrammarStore(backend("llguidance")), tmp_path)
    assert str(error.value).startswith(f"--warm-schemas: {tmp_path / name}: ")


@pytest.mark.parametrize("text", ["bad", "late", "crash"])
def test_whatever_goes_wrong_names_the_file(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.regex").write_text(text)
    with pytest.raises(ConfigError, match=f"a.regex: .*{text}"):
        warm(GrammarStore(SlowBackend()), tmp_path)


def test_a_compile_over_its_time_stops_the_start(tmp_path: Path) -> None:
    slow: GrammarBackend = (stuck := SlowBackend())
    stuck.go.clear()
    (tmp_path / "a.regex").write_text("a")
    with pytest.raises(ConfigError, match=r"a\.regex: .*more than 0\.1 s"):
        warm(GrammarStore(slow, compile_limit_s=0.1), tmp_path)
    stuck.go.set()


def test_more_than_the_store_holds_stops_the_start(tmp_path: Path) -> None:
    for index in range(4):
        (tmp_path / f"{index}.regex").write_text(f"a{index}")
    assert warm(GrammarStore(SlowBackend(), max_entries=4), tmp_path) == 4
    with pytest.raises(ConfigError, match="4 files are more"):
        warm(GrammarStore(SlowBackend(), max_entries=3), tmp_path)


def test_there_has_to_be_a_folder(tmp_path: Path) -> None:
    assert warm(GrammarStore(SlowBackend()), tmp_path) == 0
    with pytest.raises(ConfigError, match=r"--warm-schemas: .*no such folder"):
        warm(GrammarStore(SlowBackend()), tmp_path / "none")
