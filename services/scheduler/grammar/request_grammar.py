"""One choice's constraint, as the scheduler follows it: waiting for its grammar, then obeying it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from services.scheduler.core.token_mask import allow
from services.scheduler.grammar.interface import GrammarFailure, Matcher
from services.scheduler.grammar.store import Entry

_ALL = np.int32(-1)
_SLOWEST_STEP_S = 0.5
_SLOW_STEPS = 24  # of eight tokens
_SLOW_MEAN_S = 0.007  # over the last steps: a cost that grows with the output is noticed when it has grown


class RequestGrammar:
    """Implements the scheduler core's Grammar. Ids that come before the grammar is compiled are followed up later.

    With `begin_after_ids` everything is allowed until those ids were produced, one after the other; with opening ids only
    in an output that begins with those, every other is held to the grammar from the start. A grammar whose masks cost too
    much processor time is given up, and not taken again, as every step of every request waits for them.
    """

    def __init__(
        self,
        entry: Entry,
        begin_after_ids: Sequence[int] = (),
        opening_ids: Sequence[int] = (),
        *,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._entry = entry
        self._marker = tuple(begin_after_ids)
        self._tail: list[int] = []
        self._begun = not self._marker
        self._opening = tuple(opening_ids) if self._marker else ()
        self._opened = 0  # how many of them have come
        self._early: list[int] = []  # ids that came before the grammar was compiled
        self._matcher: Matcher | None = None
        self._failure: str | None = None
        self._refused: int | None = None
        self._forced: deque[int] = deque()
        self._sought = False  # whether `_forced` says what comes next
        self._clock = clock
        self._spent_s: deque[float] = deque(maxlen=_SLOW_STEPS)

    @property
    def ready(self) -> bool:
        """True once the grammar is compiled or has failed."""
        return self._entry.ready

    @property
    def error(self) -> str | None:
        """Why there is no grammar to follow."""
        if self._failure is not None:
            return self._failure
        failure = self._entry.error
        if failure is None and self._refused is not None:
            return f"the output does not follow the grammar: id {self._refused} is not allowed where it stands"
        return failure.message if failure is not None else None

    @property
    def error_field(self) -> str:
        """Field of the request that `error` is about."""
        failure = self._entry.error
        return failure.field if failure is not None else ""

    @property
    def finished(self) -> bool:
        """True once nothing may follow."""
        if not self._begun or not self._usable():
            return False
        assert self._matcher is not None
        try:
            return self._matcher.finished
        except GrammarFailure as failure:
            self._failure = str(failure)
            return False

    def accept(self, token_id: int) -> bool:
        """Advance by one id; false if the grammar does not allow it."""
        if not self._begun and self._opened < len(self._opening):
            if token_id == self._opening[self._opened]:
                self._opened += 1
                return True
            self._refused = token_id if self._opened else None
            if self._opened:
                return False
            self._begun = True
        if not self._begun:
            self._tail = [*self._tail, token_id][-len(self._marker) :]
            self._begun = tuple(self._tail) == self._marker
            return True
        if not self.ready:
            self._early.append(token_id)
            return True
        if not self._usable() or self._matcher is None:
            return False
        began = self._clock()
        accepted = self._matcher.accept(token_id)
        self._watch_cost(self._clock() - began)
        self._refused = None if accepted else token_id
        self._follow(token_id)
        return accepted

    def forced_ids(self) -> Sequence[int]:
        """Ids that come next, one after the other, whatever the model prefers; empty where it has a choice."""
        if self._sought or not self._begun or not self._usable():
            return self._forced
        assert self._matcher is not None
        began = self._clock()
        try:
            self._forced.extend(self._matcher.forced_ids())
        except GrammarFailure as failure:
            self._failure = str(failure)
        self._sought = True
        self._watch_cost(self._clock() - began)
        return self._forced

    def _follow(self, token_id: int) -> None:
        """Of what was forced the rest stays forced, unless another id was taken."""
        if self._forced and self._forced.popleft() != token_id:
            self._forced.clear()
        self._sought = bool(self._forced)

    def fill_mask(self, words: npt.NDArray[np.int32]) -> None:
        """Write the allowed ids. After a failure a single id is allowed, which `accept` then refuses."""
        next_opening = self._opening[self._opened : self._opened + 1] if not self._begun else ()
        if not self._begun and (self._opened or not next_opening):
            words[:] = 0 if next_opening else _ALL
            allow(words, next_opening)
            return
        if self._usable() and self._matcher is not None:
            began = self._clock()
            try:
                self._matcher.fill_mask(words)
                self._watch_cost(self._clock() - began)
                if not words.any():
                    self._failure = "the grammar leads to a place from which nothing can follow"
            except GrammarFailure as failure:
                self._failure = str(failure)
        if self._failure is not None or self._entry.error is not None:
            words[:] = 0
            words[0] = 1
        else:
            allow(words, next_opening)

    def _usable(self) -> bool:
        """Whether there is a matcher to ask; makes it on first use and lets it follow the ids that came early."""
        if self._failure is not None or not self.ready or self._entry.error is not None:
            return False
        if self._matcher is None:
            self._matcher = self._entry.grammar.matcher()
            early, self._early = self._early, []
            for token_id in early:
                if not self._matcher.accept(token_id):
                    self._failure = "the output so far does not follow the grammar"
                    return False
        return True

    def _watch_cost(self, seconds: float) -> None:
        """Of a mask, of an id taken, or of the look for what is forced; each is a step."""
        self._spent_s.append(seconds)
        is_slow = len(self._spent_s) == _SLOW_STEPS and sum(self._spent_s) > _SLOW_STEPS * _SLOW_MEAN_S
        if seconds > _SLOWEST_STEP_S or is_slow:
            self._failure = "following the grammar costs too much time per token"
            self._entry.condemn(self._failure)
