"""What a worker said of a finished choice, and the logprobs it sent on the way."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from services.common.errors import HeadraceError


class Reason(Enum):
    """Why a choice ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Cached:
    """Prompt tokens that were not computed, by where they were found."""

    device: int = 0
    host: int = 0
    storage: int = 0

    @property
    def total(self) -> int:
        return self.device + self.host + self.storage


@dataclass(frozen=True, slots=True)
class Finish:
    """The one terminal event of a choice. matched: a token id, or the stop string or regex that ended the text."""

    reason: Reason
    matched: int | str | None = None
    keep_bytes: int | None = None
    completion_tokens: int = 0
    cached: Cached = Cached()
    queue_s: float = 0.0
    retractions: int = 0
    message: str = ""
    error: HeadraceError | None = None


@dataclass(slots=True)
class TokenLogprob:
    """One token's logprob. `top`: (id, logprob) of the likeliest; `ids`: logprobs of the ids that were asked for."""

    token_id: int
    logprob: float | None
    top: list[tuple[int, float]]
    ids: list[float]
