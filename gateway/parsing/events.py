"""What a parser finds in a piece of text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the reader."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text the model thought with."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """A tool call starts; its name is known."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of a call's arguments, as JSON text: the pieces of one call joined are one JSON value."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The call is whole."""

    index: int


Event = Content | Reasoning | CallBegin | CallArguments | CallEnd
