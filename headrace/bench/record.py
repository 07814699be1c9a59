"""What is sent, and what came back."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """One request of a dataset. Prompts are token ids where lengths must be exact, else text or chat messages."""

    prompt_ids: tuple[int, ...] = ()
    text: str = ""
    messages: tuple[dict[str, Any], ...] = ()
    output_len: int = 128
    at_s: float | None = None  # when to send it, seconds after the start, where the dataset says so
    conversation: int | None = None  # requests of one conversation are sent one after the other

    @property
    def wanted_input_len(self) -> int | None:
        """Prompt tokens, where the dataset decides them."""
        return len(self.prompt_ids) or None


@dataclass(slots=True)
class Outcome:
    """One request's life. Times are seconds after the start of the run; `events` are arrivals of streamed chunks."""

    index: int
    wanted_input: int | None
    wanted_output: int
    sent: float = 0.0
    ended: float = 0.0
    events: array[float] = field(default_factory=lambda: array("d"))
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int | None = None
    finish: str = ""
    error: str = ""  # kind of failure, empty if it succeeded
    detail: str = ""
    text: str = ""

    @property
    def ok(self) -> bool:
        return not self.error

    @property
    def latency(self) -> float:
        """Seconds from sending to the last byte."""
        return self.ended - self.sent

    @property
    def ttft(self) -> float:
        """Seconds from sending to the first streamed chunk."""
        return (self.events[0] if self.events else self.ended) - self.sent

    @property
    def tpot(self) -> float | None:
        """Seconds per output token after the first; None for a single token."""
        return (self.latency - self.ttft) / (self.output_tokens - 1) if self.output_tokens > 1 else None

    @property
    def gaps(self) -> list[float]:
        """Every pause between two streamed chunks; a chunk of several tokens is one."""
        return [later - earlier for earlier, later in zip(self.events, self.events[1:], strict=False)]
