"""One prompt on its way to its answers, and the rules of who may end it.

door ── awaits ──► Flight.accepted, then the pipeline's run
worker session ──► choice_started / tokens / choice_final / interrupt
text session   ──► text, choice_closed
                   (both readers call in, never await; a door's listener may not block)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gateway.flight.choice import Choice
from gateway.flight.result import Finish, Reason, TokenLogprob
from gateway.flight.seeds import choice_seed
from gateway.flight.spec import GenerateSpec, ThoughtAt
from gateway.workers.lease import Lease
from gateway.workers.worker import ModelIdentity
from services.common.errors import HeadraceError

ABORT_MESSAGE = "aborted by request"


class Listener(Protocol):
    """The door's end of a flight. Called by the session readers: must return at once."""

    def text(self, choice: Choice, piece: str) -> None:
        """More text of a choice; `choice.text` holds it already."""
        ...

    def finished(self, choice: Choice) -> None:
        """The choice has its finish and all its text."""
        ...


class Silent:
    """A listener for doors that answer at the end."""

    def text(self, choice: Choice, piece: str) -> None:
        """Nothing to do: the text stays in the choice."""

    def finished(self, choice: Choice) -> None:
        """Nothing to do."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """Why an attempt ended before its choices did. code: as `resilience.resume.loss_of` knows it."""

    message: str
    code: str = "interrupted"
    error: HeadraceError | None = None


class Flight:
    """State of one request.

    turn: the running attempt's future; its result is None when all ended, else why it was interrupted.
    stages: seconds spent on the way to the first attempt, by name.
    on_begun: told once, at the first token of all, how many seconds it took; a resume is no new beginning.
    """

    def __init__(self, spec: GenerateSpec, listener: Listener) -> None:
        self.spec = spec
        self.listener = listener
        self.prompt_ids: list[int] = []
        self.max_new_tokens = 0
        self.choices = [Choice(self, i, choice_seed(spec.sampling.seed, i)) for i in range(spec.n)]
        self.prompt_logprobs: list[TokenLogprob] = []
        self.created = time.monotonic()
        self.stages: dict[str, float] = {}
        self.submitted_at = 0.0
        self.accepted_at = 0.0
        self.first_token_at = 0.0
        self.on_begun: Callable[[float], None] | None = None
        self.attempt = 0
        self.resumes = 0
        self.task: asyncio.Task[object] | None = None
        self.cancel_cause = "CLIENT_DISCONNECT"
        self.abort_requested = False
        self.stop_choice: Callable[[Choice], None] | None = None
        self.on_first_token: Callable[[], None] | None = None
        self.identity: ModelIdentity | None = None
        self.lease: Lease | None = None
        self.error: HeadraceError | None = None
        self.accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.turn: asyncio.Future[Interruption | None] = asyncio.get_running_loop().create_future()
        self.keep_special_ids: tuple[int, ...] = ()
        self.begin_after_ids: tuple[int, ...] = ()
        self.opening_ids: tuple[int, ...] = ()
        self.thought_end_id: int | None = None
        self.thought_at: ThoughtAt = "maybe"

    @property
    def begun(self) -> bool:
        """Has a worker produced anything for it?"""
        return any(choice.output_ids for choice in self.choices)

    @property
    def may_have_run(self) -> bool:
        """Unless the worker has said that the request still waits, it may be what the worker died of."""
        return any(choice.started or not choice.accepted for choice in self.running())

    def running(self) -> list[Choice]:
        """Choices that still need a worker."""
        return [choice for choice in self.choices if choice.finish is None]

    def remaining_s(self) -> float | None:
        """Seconds left until the deadline, or None where there is none."""
        limit = self.spec.timeout_s
        return None if limit is None else limit - (time.monotonic() - self.created)

    def next_turn(self) -> asyncio.Future[Interruption | None]:
        """Begin an attempt and get the future that tells its end."""
        self.attempt += 1
        self.turn = asyncio.get_running_loop().create_future()
        return self.turn

    def mark_accepted(self) -> None:
        """A worker has taken the request, its grammar included: from here on a door may send its headers."""
        if not self.accepted.done():
            self.accepted_at = time.monotonic()
            self.accepted.set_result(None)

    def mark_begun(self, now: float) -> None:
        """A token has come."""
        if not self.first_token_at:
            self.first_token_at = now
            if self.on_begun is not None:
                self.on_begun(now - self.created)

    def choice_closed(self, choice: Choice) -> None:
        """The choice's text is complete; ends the attempt with the last one."""
        if choice.closed or self.error is not None:
            return
        choice.closed = True
        self.mark_accepted()
        self.listener.finished(choice)
        if all(c.closed for c in self.choices) and not self.turn.done():
            self.turn.set_result(None)

    def interrupt(self, why: Interruption) -> None:
        """The attempt cannot go on; the pipeline decides what follows."""
        if not self.turn.done():
            self.turn.set_result(why)

    def fail(self, error: HeadraceError) -> None:
        """End the request with an error, unless it has ended already."""
        if self.error is None and not all(c.closed for c in self.choices):
            self.error = error
            if not self.turn.done():
                self.turn.set_result(Interruption(error.message, error=error))

    def satisfy(self, choice: Choice) -> None:
        """The door has all it wants of this choice: its worker may stop, and the choice counts as ended by itself."""
        if not choice.satisfied and choice.finish is None:
            choice.satisfied = True
            if self.stop_choice is not None:
                self.stop_choice(choice)

    def abort_locally(self) -> None:
        """End every open choice as aborted, with what has arrived; no worker runs it."""
        for choice in self.choices:
            if not choice.closed:
                choice.finish = Finish(Reason.ABORT, completion_tokens=len(choice.output_ids), message=ABORT_MESSAGE)
                self.choice_closed(choice)
