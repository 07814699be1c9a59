"""Calls that a grammar has forced: JSON and nothing else, whatever family the model is of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.parsing.arguments import Arguments
from gateway.parsing.events import CallBegin, Event
from gateway.parsing.json_call import JsonCall
from gateway.parsing.tools.interface import SteppedParser, ToolParser


def forced_schema(tools: Sequence[Mapping[str, Any]], named: str, *, parallel: bool) -> str:
    """The JSON schema of the answer: the named function's arguments, one call, or an array of calls."""
    functions = [tool["function"] for tool in tools]
    if named:
        return json.dumps(next(f["parameters"] for f in functions if f["name"] == named), ensure_ascii=False)
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": function["name"]}, "parameters": _without_definitions(function["parameters"])},
            "required": ["name", "parameters"],
            "additionalProperties": False,
        }
        for function in functions
    ]
    one: dict[str, Any] = {"anyOf": calls} if len(calls) > 1 else calls[0]
    schema = {"type": "array", "minItems": 1, "items": one} if parallel else one
    definitions = _definitions(functions)
    return json.dumps({**schema, **definitions}, ensure_ascii=False)


def _without_definitions(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if name not in ("$defs", "definitions")}


def _definitions(functions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """References are written from the root of the schema, so definitions move there."""
    found: dict[str, Any] = {}
    for key in ("$defs", "definitions"):
        merged: dict[str, Any] = {}
        for function in functions:
            merged.update(function["parameters"].get(key) or {})
        if merged:
            found[key] = merged
    return found


class NamedParser(ToolParser):
    """All text is the arguments of one function."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._arguments = Arguments(0)
        self._begun = False

    def feed(self, text: str) -> list[Event]:
        """See ToolParser."""
        if self._arguments.done:
            return []
        _, events = self._arguments.feed(text)
        if events and not self._begun:
            self._begun = True
            return [CallBegin(0, self._name), *events]
        return events

    def finish(self) -> list[Event]:
        """See ToolParser."""
        return []


_MUCH_SPACE = 16


class ArrayParser(SteppedParser):
    """All text is one call or an array of them. A model that only adds white space after a call has said what it wanted."""

    def __init__(self) -> None:
        super().__init__()
        self._call: JsonCall | None = None
        self._count = 0
        self._space = 0

    def finish(self) -> list[Event]:
        """See ToolParser."""
        return []

    def _step(self, events: list[Event]) -> bool:
        if self._call is None:
            stripped = self._buffer.lstrip(" \t\r\n,[]")
            self._space += len(self._buffer) - len(stripped)
            self._buffer = stripped
            self.satisfied = self._count > 0 and self._space > _MUCH_SPACE
            if not stripped:
                return False
            self._call = JsonCall(self._count)
        self._let_read(self._call, events)
        if not self._call.done and not self._call.broken:
            return False
        self._count += self._call.begun
        self._space = 0
        if self._call.broken:
            self._buffer = ""
        self._call = None
        return bool(self._buffer)
