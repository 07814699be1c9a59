"""One answer on its way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from gateway.flight.result import Cached, Finish, TokenLogprob

if TYPE_CHECKING:
    from gateway.flight.flight import Flight


class TokenSink(Protocol):
    """Where the tokens of an open text go."""

    def add_column(self, handles: list[int], positions: list[int], tokens: list[int]) -> None:
        """One token of each of these texts."""
        ...

    def add_tokens(self, handle: int, first: int, ids: list[int]) -> None:
        """Several, from output position `first` on."""
        ...


class Choice:
    """All that is known of one answer, enough to go on from it on another worker or detokenizer.

    output_ids: every token received, in order; len() is the next position expected.
    delivered_bytes: raw output bytes whose text has come back from the detokenizer.
    through: output positions that this text covers.
    trimmed: tokens at the end that are no text, 1 if a stop token ended the choice.
    awaiting: the running attempt has brought no token yet.
    sink: the detokenizer that makes the text, None while there is none.
    emit: takes a piece of text to the client, where the door has nothing to do with it but that; else the flight's listener does.
    """

    __slots__ = (
        "accepted",
        "awaiting",
        "cached",
        "closed",
        "delivered_bytes",
        "emit",
        "finish",
        "first_token_at",
        "flight",
        "index",
        "last_token_at",
        "logprobs",
        "output_ids",
        "queue_s",
        "retractions",
        "satisfied",
        "seed",
        "sink",
        "started",
        "text",
        "text_handle",
        "through",
        "trimmed",
        "worker_handle",
    )

    def __init__(self, flight: Flight, index: int, seed: int) -> None:
        self.flight = flight
        self.index = index
        self.seed = seed
        self.output_ids: list[int] = []
        self.text: list[str] = []
        self.delivered_bytes = 0
        self.trimmed = 0
        self.through = 0
        self.logprobs: list[TokenLogprob] = []
        self.worker_handle = 0
        self.text_handle = 0
        self.sink: TokenSink | None = None
        self.emit: Callable[[str], None] | None = None
        self.accepted = False
        self.awaiting = False
        self.started = False
        self.satisfied = False
        self.finish: Finish | None = None
        self.closed = False
        self.cached: Cached | None = None
        self.queue_s = 0.0
        self.retractions = 0
        self.first_token_at = 0.0
        self.last_token_at = 0.0

    def text_ids(self) -> list[int]:
        """The tokens that make the text: without the stop token that ended it, unless that is kept."""
        return self.output_ids[: len(self.output_ids) - self.trimmed] if self.trimmed else self.output_ids

    def full_text(self) -> str:
        """All text so far, collapsed to one piece."""
        if len(self.text) > 1:
            self.text[:] = ["".join(self.text)]
        return self.text[0] if self.text else ""
