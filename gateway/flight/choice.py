"""One answer on its way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.flight.result import Cached, Finish, TokenLogprob

if TYPE_CHECKING:
    from gateway.flight.flight import Flight


class Choice:
    """All that is known of one answer, enough to go on from it on another worker or detokenizer.

    output_ids: every token received, in order; len() is the next position expected.
    delivered_bytes: raw output bytes whose text has come back from the detokenizer.
    through: output positions that this text covers.
    """

    __slots__ = (
        "accepted",
        "cached",
        "closed",
        "delivered_bytes",
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
        "started",
        "text",
        "text_handle",
        "through",
        "worker_handle",
    )

    def __init__(self, flight: Flight, index: int, seed: int) -> None:
        self.flight = flight
        self.index = index
        self.seed = seed
        self.output_ids: list[int] = []
        self.text: list[str] = []
        self.delivered_bytes = 0
        self.through = 0
        self.logprobs: list[TokenLogprob] = []
        self.worker_handle = 0
        self.text_handle = 0
        self.accepted = False
        self.started = False
        self.satisfied = False
        self.finish: Finish | None = None
        self.closed = False
        self.cached: Cached | None = None
        self.queue_s = 0.0
        self.retractions = 0
        self.first_token_at = 0.0
        self.last_token_at = 0.0

    def full_text(self) -> str:
        """All text so far, collapsed to one piece."""
        if len(self.text) > 1:
            self.text[:] = ["".join(self.text)]
        return self.text[0] if self.text else ""
