"""Which choice belongs to which Session, and what of a turn goes where. Lives in the event loop."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from services.scheduler.core.messages import SubmitRequest, TurnOutput
from services.scheduler.delivery import Cancel, Delivery, EngineClient, Submit, Update
from services.scheduler.outbox import portions

HANDLE_BITS = 32  # lower part of a handle: the peer's; upper part: the Session


class Peer(Protocol):
    """One Session, as the hub sees it. Neither call may block."""

    def deliver(self, output: TurnOutput) -> None:
        """Take what a turn said about this Session's choices."""

    def notify_draining(self, remaining_ms: int) -> None:
        """Tell the peer that this worker leaves."""

    def break_off(self) -> None:
        """End the Session at once."""


@dataclass(frozen=True, slots=True)
class _Live:
    """A choice the scheduler has, by its global handle."""

    request_id: str


class Hub:
    """Routes between Sessions and the engine; knows every live choice."""

    def __init__(self) -> None:
        self._engine: EngineClient | None = None
        self._peers: dict[int, Peer] = {}
        self._ids = itertools.count(1)
        self._live: dict[int, _Live] = {}
        self._changed = asyncio.Event()
        self.draining = False

    def attach(self, engine: EngineClient) -> None:
        """Set whom to submit to."""
        self._engine = engine

    @property
    def sessions(self) -> int:
        """Connected Sessions."""
        return len(self._peers)

    @property
    def live(self) -> int:
        """Choices that have not ended."""
        return len(self._live)

    def open(self, peer: Peer) -> int:
        """Register a Session; its number is the upper part of its handles."""
        number = next(self._ids)
        self._peers[number] = peer
        return number

    def close(self, number: int, cause: int) -> None:
        """A Session ended: its choices are cancelled, what they computed stays cached."""
        self._peers.pop(number, None)
        self._cancel([handle for handle in self._live if handle >> HANDLE_BITS == number], cause)
        self._changed.set()

    def submit(self, request: SubmitRequest) -> None:
        """Hand a request to the scheduler."""
        assert self._engine is not None
        for choice in request.choices:
            self._live[choice.handle] = _Live(request.request_id)
        self._engine.send(Submit(request))

    def is_live(self, handle: int) -> bool:
        """Whether this global handle is in use."""
        return handle in self._live

    def cancel(self, handle: int, cause: int) -> None:
        """End one choice; its final follows unless it has ended already."""
        self._cancel([handle] if handle in self._live else [], cause)

    def update(self, update: Update) -> None:
        """Change a live choice; others are ignored."""
        assert self._engine is not None
        if update.handle in self._live:
            self._engine.send(update)

    def abort(self, request_id: str | None, cause: int) -> int:
        """End all choices of a request, or of every request with None; returns how many requests that concerns."""
        handles = [handle for handle, live in self._live.items() if request_id is None or live.request_id == request_id]
        requests = len({self._live[handle].request_id for handle in handles})
        self._cancel(handles, cause)
        return requests

    def on_turn(self, delivery: Delivery) -> None:
        """Pass on what a turn said."""
        output = delivery.output
        if not output:
            return
        for number, portion in portions(output, HANDLE_BITS).items():
            peer = self._peers.get(number)
            if peer is not None:
                peer.deliver(portion)
        if output.finals:
            for final in output.finals:
                self._live.pop(final.handle, None)
            self._changed.set()

    def fail(self) -> None:
        """The engine is gone: no Session can go on."""
        self._live.clear()
        for peer in list(self._peers.values()):
            peer.break_off()
        self._changed.set()

    async def drain(self, grace_ms: int, quiet_s: float = 1.0) -> None:
        """Refuse new Sessions; return when all have left, or nothing was asked of this worker for `quiet_s`."""
        self.draining = True
        for peer in list(self._peers.values()):
            peer.notify_draining(grace_ms)
        while self._peers:
            self._changed.clear()
            if self._live:
                await self._changed.wait()
                continue
            try:
                await asyncio.wait_for(self._changed.wait(), quiet_s)
            except TimeoutError:
                if not self._live:
                    return

    def _cancel(self, handles: Iterable[int], cause: int) -> None:
        assert self._engine is not None
        self._engine.send(*(Cancel(handle, cause) for handle in handles))
