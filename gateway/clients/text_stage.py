"""All detokenizers as one place where tokens become text.

A choice belongs to one Session, or to none while no detokenizer is there; then its tokens wait in the choice itself,
and the next Session opens it from them.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.clients.detokenizer import TextSession
from gateway.flight.choice import Choice
from services.common.server_config import ServerConfig


class TextPool:
    """Opens, feeds and closes texts on the least busy detokenizer, and moves them when one is lost."""

    def __init__(self, addresses: Sequence[str], *, client_id: str, trust: ServerConfig | None) -> None:
        self.sessions = [TextSession(address, self, client_id=client_id, trust=trust) for address in addresses]
        self._home: dict[Choice, TextSession | None] = {}
        self.reopened = 0

    def start(self) -> None:
        """Connect to all of them, from now on."""
        for session in self.sessions:
            session.start()

    async def close(self) -> None:
        """End all Sessions."""
        for session in self.sessions:
            await session.close()

    @property
    def ready(self) -> bool:
        """Is there a detokenizer?"""
        return any(session.connected for session in self.sessions)

    def _pick(self) -> TextSession | None:
        able = [s for s in self.sessions if s.usable] or [s for s in self.sessions if s.connected]
        return min(able, key=lambda s: s.open_texts) if able else None

    def open(self, choice: Choice) -> None:
        """Begin a choice's text. A choice that is open already, as after a resume, stays so."""
        if choice in self._home or choice.closed:
            return
        session = self._pick()
        self._home[choice] = session
        if session is not None:
            session.open(choice)

    def tokens(self, choice: Choice, first: int, ids: list[int]) -> None:
        """Tokens of a choice from output position `first` on; they are in `choice.output_ids` already."""
        try:
            session = self._home[choice]
        except KeyError:
            self.open(choice)
            return
        if session is not None:
            session.add_tokens(choice.text_handle, first, ids)

    def drop(self, choice: Choice) -> None:
        """Nobody wants the choice's text any more."""
        session = self._home.pop(choice, None)
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

    def connected(self) -> TextSession | None:
        """A Session that can be asked now, if there is one."""
        return self._pick()

    def flush(self) -> None:
        """Send what the last frame brought."""
        for session in self.sessions:
            session.flush()

    def session_up(self, session: TextSession) -> None:
        """A detokenizer is there: it takes the texts that have none."""
        for choice in [c for c, home in self._home.items() if home is None]:
            self._reopen(choice, session)
        for other in self.sessions:
            if other.connected and other.draining:
                self.session_draining(other)

    def session_down(self, session: TextSession, choices: list[Choice]) -> None:
        """A detokenizer is gone: its texts move, or wait."""
        self._move(choices)

    def session_draining(self, session: TextSession) -> None:
        """A detokenizer is about to leave: its texts move if there is another, and it is let go."""
        if any(s.usable for s in self.sessions):
            self._move(session.give_up())
            session.leave()

    def _move(self, choices: list[Choice]) -> None:
        for choice in choices:
            if choice in self._home:
                self._home[choice] = None
        target = self._pick()
        if target is not None:
            for choice in choices:
                if choice in self._home:
                    self._reopen(choice, target)

    def _reopen(self, choice: Choice, session: TextSession) -> None:
        self._home[choice] = session
        self.reopened += 1
        session.open(choice)
        if choice.finish is not None:
            session.close_text(choice, flush=True)
        session.flush()
