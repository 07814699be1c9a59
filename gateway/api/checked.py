"""Answers checked against their schemas once they are whole, and how the doors tell the result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gateway.checking.checker import SchemaChecker
from gateway.flight.choice import Choice
from gateway.flight.spec import GenerateSpec, SchemaCheck
from gateway.parsing.plan import AnswerParser, Call
from services.common.errors import InvalidRequest


async def accept_check(checker: SchemaChecker, spec: GenerateSpec) -> None:
    """Before generation: raises InvalidRequest where an answer could not be checked against all of a schema."""
    if spec.check is None:
        return
    for schema, of in _schemas(spec.check):
        problem = await checker.problem_of(schema)
        if problem:
            raise InvalidRequest(f"{spec.check.origin}: {of}{problem}", field=spec.check.origin)


def _schemas(check: SchemaCheck) -> Iterable[tuple[str, str]]:
    if check.answer:
        yield check.answer, ""
    for name, schema in check.calls.items():
        yield schema, f"parameters of {name}: "


async def verdict_of(checker: SchemaChecker, choice: Choice, parser: AnswerParser | None = None) -> dict[str, Any]:
    """The `schema_check` object of one choice. parser: what took its text apart, if anything did."""
    check = choice.flight.spec.check
    assert check is not None
    calls = parser.calls if parser is not None else []
    text = "".join(parser.content) if parser is not None else choice.full_text()
    made = [await checker.verdict(check.answer, text)] if check.answer and (text or not calls) else []
    made += [await _call_verdict(checker, check, place, call) for place, call in enumerate(calls)]
    return _together(made)


async def _call_verdict(checker: SchemaChecker, check: SchemaCheck, place: int, call: Call) -> dict[str, Any]:
    if call.name in check.calls:
        verdict = await checker.verdict(check.calls[call.name], "".join(call.arguments))
    else:
        error = {"path": "", "keyword": None, "schema_path": "#", "message": f"there is no function {call.name!r}"}
        verdict = {"valid": False, "errors": [error]}
    for error in verdict.get("errors", ()):
        error["tool_call"] = place
    return verdict


def _together(verdicts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One verdict: false if any is, else null if any is."""
    errors = [error for verdict in verdicts for error in verdict.get("errors", ())]
    if errors:
        return {"valid": False, "errors": errors}
    return next((verdict for verdict in verdicts if verdict["valid"] is None), {"valid": True})


async def verdict_list(checker: SchemaChecker, rated: Iterable[tuple[int, Choice, AnswerParser | None]]) -> list[dict[str, Any]]:
    """Verdicts with the index of their choice, as streams tell them in an event of their own."""
    return [{"index": index, **await verdict_of(checker, choice, parser)} for index, choice, parser in rated]
