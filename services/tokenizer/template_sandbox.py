"""The Jinja environment chat templates run in: what Hugging Face templates expect, and bounds on time and size."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

TICK = "_headrace_tick"
_MOST_REPEATED = 1_000_000


class TemplateRefusal(TemplateError):
    """Raised by a template on purpose; the message is for the user."""


class TemplateTooSlow(TemplateError):
    """Rendering took longer, or produced more, than allowed."""


class _GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}` marks answers for training; rendering passes its body through."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Environment(ImmutableSandboxedEnvironment):
    """Every turn of a loop and every call of a macro passes the clock; repetition of text is bounded."""

    intercepted_binops = frozenset(("*", "**"))

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        looping: list[nodes.For | nodes.Macro] = [*tree.find_all(nodes.For), *tree.find_all(nodes.Macro)]
        for node in looping:
            node.body.insert(0, nodes.Output([nodes.Call(nodes.Name(TICK, "load"), [], [], None, None)]))
        return tree

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" or (not isinstance(left, int | float) or not isinstance(right, int | float)):
            count = next((side for side in (right, left) if isinstance(side, int)), 0)
            size = max((len(side) for side in (left, right) if hasattr(side, "__len__")), default=1)
            if count * size > _MOST_REPEATED or (operator == "**" and count > 64):
                raise SecurityError(f"{operator} with a result this large is not allowed in a chat template")
        return super().call_binop(context, operator, left, right)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateRefusal(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: tuple[str, str] | None = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def make_environment() -> ImmutableSandboxedEnvironment:
    """The environment. Templates compiled in it need TICK among their variables."""
    environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def ticker(seconds: float) -> Callable[[], str]:
    """A function for TICK: empty text until the time is over, then TemplateTooSlow."""
    deadline = time.monotonic() + seconds

    def tick() -> str:
        if time.monotonic() > deadline:
            raise TemplateTooSlow(f"rendering took more than {seconds:g} s")
        return ""

    return tick
