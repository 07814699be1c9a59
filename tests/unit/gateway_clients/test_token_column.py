"""A step's tokens reach the detokenizer of their choice, in order."""

from __future__ import annotations

from gateway.clients.token_column import TokenColumn


class Sink:
    """What one detokenizer was given."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int]] = []

    def add_column(self, handles: list[int], positions: list[int], tokens: list[int]) -> None:
        self.rows += zip(handles, positions, tokens, strict=True)

    def add_tokens(self, handle: int, first: int, ids: list[int]) -> None:
        self.rows += [(handle, first + place, token) for place, token in enumerate(ids)]


def test_a_column_turns_between_detokenizers_and_hands_over_what_has_gathered() -> None:
    column, one, two = TokenColumn(), Sink(), Sink()
    for sink, handle, position, token in ((one, 1, 0, 10), (one, 2, 5, 11), (two, 1, 3, 12), (one, 1, 1, 13)):
        if sink is not column.sink:
            column.turn_to(sink)
        column.handles.append(handle)
        column.positions.append(position)
        column.tokens.append(token)
    column.turn_to(None)
    column.turn_to(None)
    assert one.rows == [(1, 0, 10), (2, 5, 11), (1, 1, 13)]
    assert two.rows == [(1, 3, 12)]
