"""A step's tokens, gathered for the detokenizer."""

from __future__ import annotations

from gateway.flight.choice import TokenSink


class TokenColumn:
    """Single tokens of one step on their way to the detokenizer of their choices, which is nearly always the same one."""

    __slots__ = ("handles", "positions", "sink", "tokens")

    def __init__(self) -> None:
        self.sink: TokenSink | None = None
        self.handles: list[int] = []
        self.positions: list[int] = []
        self.tokens: list[int] = []

    def turn_to(self, sink: TokenSink | None) -> None:
        """Hand over what has gathered; what follows is for `sink`."""
        if self.sink is not None:
            self.sink.add_column(self.handles, self.positions, self.tokens)
            self.handles.clear()
            self.positions.clear()
            self.tokens.clear()
        self.sink = sink
