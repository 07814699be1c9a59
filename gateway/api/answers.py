"""Pieces of OpenAI answers that several doors share."""

from __future__ import annotations

from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Any

from gateway.clients.pieces import PieceTable
from gateway.flight.choice import Choice
from gateway.flight.result import Reason, TokenLogprob

quote: Callable[[str], str] = encode_basestring  # JSON string of a text, quotes included; C code in CPython


def finish_reason(choice: Choice, *, called: bool = False) -> str:
    """The OpenAI word for a choice's end."""
    assert choice.finish is not None
    reason = choice.finish.reason
    if reason is Reason.STOP:
        return "tool_calls" if called else "stop"
    return str(reason.value)


def is_cut(choice: Choice) -> bool:
    """Did something other than the model end the text?"""
    return choice.finish is None or choice.finish.reason is not Reason.STOP


def matched_stop(choice: Choice) -> int | str | None:
    """What ended the text: a token id or a stop text."""
    return choice.finish.matched if choice.finish is not None else None


def chat_logprob(entry: TokenLogprob, pieces: PieceTable) -> dict[str, Any]:
    """One token in a chat answer's logprobs."""
    made = _one(entry.token_id, entry.logprob, pieces)
    made["top_logprobs"] = [_one(token, value, pieces) for token, value in entry.top]
    return made


def _one(token: int, value: float | None, pieces: PieceTable) -> dict[str, Any]:
    raw = pieces.bytes_of(token)
    return {"token": raw.decode("utf-8", "replace"), "logprob": finite(value), "bytes": list(raw)}


def finite(value: float | None) -> float | None:
    """JSON has no infinity: a token that was ruled out gets a very small logprob, as OpenAI does."""
    return value if value is None or value > -9999.0 else -9999.0


def ids_in(entries: list[TokenLogprob]) -> list[int]:
    """All token ids that logprobs name."""
    return [token for entry in entries for token in (entry.token_id, *(t for t, _ in entry.top))]
