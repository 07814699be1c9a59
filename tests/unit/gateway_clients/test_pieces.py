"""The bytes of tokens are asked for until a detokenizer that is starting again answers, and then never again."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.clients import pieces
from gateway.clients.pieces import PieceTables
from services.common.errors import Unavailable


class Restarting:
    """A text pool whose detokenizer is away for the first `away` questions and loses the next one."""

    def __init__(self, away: int) -> None:
        self.away = away
        self.asked: list[list[int]] = []

    def connected(self, digest: str) -> Restarting | None:
        self.away -= 1
        return self if self.away < 0 else None

    async def ask_pieces(self, ids: list[int]) -> list[bytes]:
        self.asked.append(ids)
        if len(self.asked) == 1:
            raise Unavailable("the connection was lost")
        return [bytes([token]) for token in ids]


async def test_an_answer_waits_for_the_detokenizer_as_long_as_its_text_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "_PAUSE_S", 0.0)
    pool: Any = Restarting(away=200)
    table = PieceTables(pool, lambda model: "digest", hold_s=60.0).of("m")
    await table.ensure([104, 105])
    assert (table.text_of(104), table.text_of(105)) == ("h", "i")
    await table.ensure([105, 104])
    assert len(pool.asked) == 2


async def test_a_detokenizer_that_stays_away_is_an_error_that_says_so() -> None:
    pool: Any = Restarting(away=10)
    with pytest.raises(Unavailable, match="detokenizer"):
        await PieceTables(pool, lambda model: "digest", hold_s=0.0).of("m").ensure([104])
