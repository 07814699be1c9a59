"""All detokenizers as one place where tokens become text.

A choice belongs to one Session, or to none while no detokenizer is there; then its tokens wait in the choice itself,
and the next Session opens it from them.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence

from gateway.clients.detokenizer import TextSession
from gateway.flight.choice import Choice
from services.common.server_config import ServerConfig

log = logging.getLogger(__name__)

_DNS = "dns:///"
_RESOLVE_S = 5.0


class TextPool:
    """Opens, feeds and closes texts on the least busy detokenizer, and moves them when one is lost."""

    def __init__(self, addresses: Sequence[str], *, client_id: str, trust: ServerConfig | None) -> None:
        self._client_id = client_id
        self._trust = trust
        self._names = [address for address in addresses if address.startswith(_DNS)]
        self._following: asyncio.Task[None] | None = None
        self.sessions = [self._session(address) for address in addresses if address not in self._names]
        self._home: dict[Choice, TextSession | None] = {}
        self.reopened = 0

    def start(self) -> None:
        """Connect to all of them, from now on."""
        for session in self.sessions:
            session.start()
        if self._names:
            self._following = asyncio.create_task(self._follow(), name="detokenizer addresses")

    async def close(self) -> None:
        """End all Sessions."""
        if self._following is not None:
            self._following.cancel()
        for session in self.sessions:
            await session.close()

    def _session(self, address: str) -> TextSession:
        return TextSession(address, self, client_id=self._client_id, trust=self._trust)

    async def _follow(self) -> None:
        """A name stands for all its addresses: one Session each, as they come and go."""
        while True:
            for name in self._names:
                await self._resolve(name)
            await asyncio.sleep(_RESOLVE_S)

    async def _resolve(self, name: str) -> None:
        host, _, port = name.removeprefix(_DNS).rpartition(":")
        try:
            answers = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:
            log.warning("detokenizer name does not resolve", extra={"name": name, "reason": str(error)})
            return
        found = {f"[{answer[4][0]}]:{port}" if ":" in str(answer[4][0]) else f"{answer[4][0]}:{port}" for answer in answers}
        for address in found - {session.address for session in self.sessions}:
            session = self._session(address)
            self.sessions.append(session)
            session.start()
        for session in [s for s in self.sessions if s.address not in found and not s.connected]:
            self.sessions.remove(session)
            await session.close()

    @property
    def ready(self) -> bool:
        """Is there a detokenizer?"""
        return any(session.connected for session in self.sessions)

    def _pick(self, digest: str) -> TextSession | None:
        """The least busy one of that vocabulary; where all have another, any, which says so."""
        there = [s for s in self.sessions if s.connected]
        fitting = [s for s in there if not digest or s.digest == digest] or there
        able = [s for s in fitting if s.usable] or fitting
        return min(able, key=lambda s: s.open_texts) if able else None

    def open(self, choice: Choice) -> None:
        """Begin a choice's text. A choice that is open already, as after a resume, stays so."""
        if choice in self._home or choice.closed:
            return
        session = self._settle(choice, self._pick(_digest(choice)))
        if session is not None:
            session.open(choice)

    def _settle(self, choice: Choice, session: TextSession | None) -> TextSession | None:
        self._home[choice] = choice.sink = session
        return session

    def tokens(self, choice: Choice, first: int, ids: list[int]) -> None:
        """Tokens of a choice from output position `first` on; they are in `choice.output_ids` already.

        What its detokenizer has been told of may go to `choice.sink` directly.
        """
        if choice not in self._home:
            self.open(choice)
        elif choice.sink is not None and ids:
            choice.sink.add_tokens(choice.text_handle, first, ids)

    def drop(self, choice: Choice) -> None:
        """Nobody wants the choice's text any more."""
        session = self._home.pop(choice, None)
        choice.sink = None
        if session is not None:
            session.close_text(choice, flush=False)

    def end(self, choice: Choice) -> None:
        """The choice has its finish: what is held back is due."""
        self.open(choice)
        session = self._home.get(choice)
        if session is not None:
            session.close_text(choice, flush=True)

    def forget(self, choice: Choice) -> None:
        """The choice's text is complete."""
        self._home.pop(choice, None)
        choice.sink = None

    def connected(self, digest: str = "") -> TextSession | None:
        """A Session of that vocabulary, or any, that can be asked now, if there is one."""
        session = self._pick(digest)
        return session if session is None or not digest or session.digest == digest else None

    def flush(self) -> None:
        """Send what the last frame brought."""
        for session in self.sessions:
            session.flush()

    def session_up(self, session: TextSession) -> None:
        """A detokenizer is there: it takes the texts that have none."""
        for choice in [c for c, home in self._home.items() if home is None]:
            self._reopen(choice, self._pick(_digest(choice)) or session)
        for other in self.sessions:
            if other.connected and other.draining:
                self.session_draining(other)

    def session_down(self, session: TextSession, choices: list[Choice]) -> None:
        """A detokenizer is gone: its texts move, or wait."""
        self._move(choices)

    def session_draining(self, session: TextSession) -> None:
        """A detokenizer is about to leave: its texts move if there is another, and it is let go."""
        if any(s.usable and s.digest == session.digest for s in self.sessions):
            self._move(session.give_up())
            session.leave()

    def _move(self, choices: list[Choice]) -> None:
        for choice in choices:
            if choice in self._home:
                self._settle(choice, None)
        for choice in choices:
            if choice in self._home and (target := self._pick(_digest(choice))) is not None:
                self._reopen(choice, target)

    def _reopen(self, choice: Choice, session: TextSession) -> None:
        self._settle(choice, session)
        self.reopened += 1
        session.open(choice)
        if choice.finish is not None:
            session.close_text(choice, flush=True)
        session.flush()


def _digest(choice: Choice) -> str:
    identity = choice.flight.identity
    return identity.tokenizer_digest if identity is not None else ""
