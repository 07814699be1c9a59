"""Grammars of which a text has boundlessly many readings are told from those that are only recursive."""

from __future__ import annotations

import pytest

from services.scheduler.grammar.ambiguity import ambiguity

_CIRCLE, _TWICE = "derives itself and nothing besides", "derives itself twice in a row"

BOUNDLESS = [
    ('root ::= root root | "a" | ""', "rule root", _CIRCLE),
    ("root ::= root", "rule root", _CIRCLE),
    ('root ::= "x" a\na ::= b\nb ::= c | "y"\nc ::= a', "rule a|rule b|rule c", _CIRCLE),
    ('root ::= a\na ::= b b | "a"\nb ::= a | ""', "rule a|rule b", _CIRCLE),
    ('root ::= s\ns ::= s t | "s"\nt ::= u*\nu ::= "u"', "rule s", _CIRCLE),
    ('root ::= (root)? "a"{0,3}', "rule root", _CIRCLE),
    ('root ::= ("a" | root)*', "rule root", _CIRCLE),
    ('root ::= root root | "a"', "rule root", _TWICE),
    ('root ::= root ws root | "a"\nws ::= [ \\t]*', "rule root", _TWICE),
    ('root ::= a # a ::= ""\na ::= b b | "x"\nb ::= a', "rule a", _TWICE),
    ('root ::= root+ "." | "a"', None, ""),
    ('root ::= "a" | root{2}', "a group", _TWICE),
]
RECURSIVE = [
    'root ::= root "a" | "a"',
    'root ::= "a" root | ""',
    'root ::= "(" root ")" root | ""',
    'root ::= root "+" root | "(" root ")" | [0-9]+',
    'root ::= ("a"?)* "b"{2,} ("c" | "")',
    'root ::= "root ::= root root | \\"" [\\]"] # root ::= root',
    'root ::= object\nobject ::= "{" (pair ("," pair)*)? "}"\npair ::= key ":" value\nkey ::= "\\"" [a-z]* "\\""\nvalue ::= object | key',
    'root ::= "a" (="b") "b"\n',
    "root ::= missing missing",
]
NO_EBNF = ["", "root", "root ::= (", "root ::= )", "root ::= *", "root ::= <a>", '"a" ::= root', "root ::= 'a'", "root ::= [a"]


@pytest.mark.parametrize(("text", "who", "why"), BOUNDLESS)
def test_boundless_readings_are_found(text: str, who: str | None, why: str) -> None:
    found = ambiguity(text)
    if who is None:
        assert found is None
    else:
        assert found is not None
        assert any(found.startswith(f"{name} {why}") for name in who.split("|"))


@pytest.mark.parametrize("text", RECURSIVE)
def test_recursion_alone_is_no_fault(text: str) -> None:
    assert ambiguity(text) is None


@pytest.mark.parametrize("text", NO_EBNF)
def test_what_is_no_ebnf_is_left_to_the_backend(text: str) -> None:
    assert ambiguity(text) is None


@pytest.mark.parametrize("last", ["a0", '"x"'])
def test_long_chains_and_deep_groups_cost_no_more_than_their_length(last: str) -> None:
    count = 10_000
    chain = "".join(f"a{index} ::= a{index + 1}\n" for index in range(count)) + f"a{count} ::= {last}"
    assert (ambiguity(chain) is not None) == (last == "a0")
    assert ambiguity("root ::= " + "(" * count + '"x"' + ")*" * count) is None
    pairs = "".join(f"a{index} ::= a{index + 1} a{index + 1}\n" for index in range(count)) + f'a{count} ::= "x"'
    assert ambiguity(pairs) is None
    ladder = "\n".join(f"a{index} ::= a{index + 1} | a{index + 1} a{index + 1}" for index in range(count))
    assert "too many rules" in str(ambiguity(ladder))
