"""The asyncio side talks to the scheduler, which turns in a thread of its own. Neither ever waits for the other.

    event loop                         engine thread
    send(message) ──── inbox ────────► submit, cancel, … then one turn
    on_turn(delivery) ◄── one wake-up per turn ── output, cache events, load

Engine and scheduler are built, used and closed in that thread.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TypeVar

from services.scheduler.cache.events import CacheSnapshot
from services.scheduler.core.counters import Counters
from services.scheduler.core.decisions import Decision
from services.scheduler.core.messages import LoadSnapshot
from services.scheduler.core.scheduler import Scheduler
from services.scheduler.delivery import Cancel, Delivery, Facts, Message, Submit, Update
from services.scheduler.engine.interface import Engine

log = logging.getLogger(__name__)

T = TypeVar("T")
_LOAD_EVERY_NS = 50_000_000
_IDLE_CHECK_S = 5.0
_STALLED_CHECK_S = 0.002  # choices wait for something that is not a step, such as a grammar


@dataclass(frozen=True, slots=True)
class _Call:
    """Run something between two turns."""

    work: Callable[[Scheduler], None]


@dataclass(frozen=True, slots=True)
class Built:
    """What runs in the engine thread. `between_turns` is called after every turn; messages are taken every so many turns."""

    scheduler: Scheduler
    engine: Engine
    facts: Facts
    between_turns: Callable[[], None] = lambda: None
    turns_between_messages: int = 1


class EngineThread:
    """Runs the scheduler's loop. All methods but the constructor's arguments are for the event loop's thread."""

    def __init__(
        self,
        build: Callable[[], Built],
        on_turn: Callable[[Delivery], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`build` runs in the engine thread, the callbacks in the event loop."""
        self._build = build
        self._on_turn = on_turn
        self._on_failure = on_failure
        self._inbox: SimpleQueue[Message | _Call | None] = SimpleQueue()
        self._deliveries: deque[Delivery] = deque()
        self._wake_pending = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready: asyncio.Future[Facts] | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._stopping = False
        self.counters = Counters()
        self._scheduler: Scheduler | None = None
        self.load: LoadSnapshot | None = None  # refreshed while turning, and when work ends
        self.busy_since_ns = 0  # end of the last turn (or arrival of work) while work is pending; 0 when idle

    async def start(self) -> Facts:
        """Build the scheduler and begin to turn. Raises what `build` raised."""
        self._loop = asyncio.get_running_loop()
        self._ready = self._loop.create_future()
        self._thread.start()
        return await self._ready

    @property
    def evicted_tokens(self) -> int:
        return self._scheduler.evicted_tokens if self._scheduler is not None else 0

    @property
    def eviction_ns(self) -> int:
        return self._scheduler.eviction_ns if self._scheduler is not None else 0

    def send(self, *messages: Message) -> None:
        """Hand messages to the scheduler's next turn, in order."""
        for message in messages:
            self._inbox.put(message)

    async def call(self, work: Callable[[Scheduler], T]) -> T:
        """Run `work` between two turns and return its result."""
        assert self._loop is not None
        loop, done = self._loop, self._loop.create_future()

        def run(scheduler: Scheduler) -> None:
            try:
                result = work(scheduler)
            except Exception as error:
                loop.call_soon_threadsafe(_settle, done, None, error)
            else:
                self.load = scheduler.load()  # whoever asks next sees what the call changed
                loop.call_soon_threadsafe(_settle, done, result, None)

        self._inbox.put(_Call(run))
        value: T = await done
        return value

    def turn_age_s(self) -> float:
        """Seconds since the last turn ended while work is pending; 0 when idle."""
        since = self.busy_since_ns
        return (time.monotonic_ns() - since) / 1e9 if since else 0.0

    def dump_stacks(self) -> None:
        """Nothing: a dump of this process has the thread."""

    async def decisions(self, count: int) -> Sequence[Decision]:
        """The newest decisions, newest last."""
        return await self.call(lambda scheduler: scheduler.decisions(count))

    async def cache_snapshot(self) -> CacheSnapshot:
        """All cached blocks."""
        return await self.call(lambda scheduler: scheduler.cache_snapshot())

    async def flush_cache(self) -> int | None:
        """Empty the prefix cache; None while choices live."""
        return await self.call(lambda scheduler: scheduler.flush_cache())

    async def stop(self) -> None:
        """Let the current turn end, close scheduler and engine, join the thread."""
        self._stopping = True
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join)

    # ------------------------------------------------------------------ engine thread

    def _run(self) -> None:
        try:
            built = self._build()
            self._scheduler = built.scheduler
            self.load, self.counters = built.scheduler.load(), built.scheduler.counters
        except BaseException as error:
            self._post(_fail, self._ready, error)
            return
        self._post(_settle, self._ready, built.facts, None)
        try:
            self._turn_forever(built)
        except BaseException as error:
            log.exception("the engine thread died")
            self._post(self._on_failure, error)
        finally:
            built.engine.close()

    def _turn_forever(self, built: Built) -> None:
        scheduler = built.scheduler
        load_due = turns_left = 0
        while not self._stopping:
            if not scheduler.has_work:
                self.load = scheduler.load()
                self.busy_since_ns = turns_left = 0
                self._wait(scheduler, _IDLE_CHECK_S)
            if not turns_left:
                turns_left = built.turns_between_messages
                self._take_all(scheduler)
            turns_left -= 1
            if said := scheduler.said():
                self._deliver(Delivery(said, None, None))
            before = _steps(scheduler.counters)
            output = scheduler.turn()
            built.between_turns()
            now = self.busy_since_ns = time.monotonic_ns()
            mode = _mode(before, _steps(scheduler.counters))
            events = scheduler.drain_cache_events()
            if output or events.events or mode:
                self._deliver(Delivery(output, events if events.events else None, mode))
            if now >= load_due:
                self.load = scheduler.load()
                load_due = now + _LOAD_EVERY_NS
            if mode is None and not output:
                turns_left = 0
                self._wait(scheduler, _STALLED_CHECK_S)

    def _wait(self, scheduler: Scheduler, most_s: float) -> None:
        """Sleep until there is a message, and take it; or until `most_s` is over."""
        try:
            message = self._inbox.get(timeout=most_s)
        except Empty:
            return
        self.busy_since_ns = time.monotonic_ns()
        self._apply(scheduler, message)

    def _take_all(self, scheduler: Scheduler) -> None:
        while not self._inbox.empty():
            self._apply(scheduler, self._inbox.get_nowait())

    @staticmethod
    def _apply(scheduler: Scheduler, message: Message | _Call | None) -> None:
        if isinstance(message, Submit):
            scheduler.submit(message.request)
        elif isinstance(message, Cancel):
            scheduler.cancel(message.handle, message.cause)
        elif isinstance(message, Update):
            scheduler.update(message.handle, priority=message.priority, deadline_ns=message.deadline_ns)
        elif isinstance(message, _Call):
            message.work(scheduler)

    def _deliver(self, delivery: Delivery) -> None:
        """Queue for the event loop; it is woken once, however many turns pass before it looks."""
        self._deliveries.append(delivery)
        if not self._wake_pending:
            self._wake_pending = True
            self._post(self._drain)

    def _post(self, callback: Callable[..., object], *arguments: object) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop is closed: nobody is left to tell
            self._stopping = True

    # ------------------------------------------------------------------ event loop

    def _drain(self) -> None:
        self._wake_pending = False
        while self._deliveries:
            self._on_turn(self._deliveries.popleft())


def _settle(future: asyncio.Future[object], result: object, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _fail(future: asyncio.Future[object], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))


def _steps(counters: Counters) -> tuple[int, int, int]:
    return counters.prefill_steps, counters.decode_steps, counters.mixed_steps


def _mode(before: tuple[int, int, int], after: tuple[int, int, int]) -> str | None:
    if after[2] > before[2]:
        return "mixed"
    if after[0] > before[0]:
        return "prefill"
    return "decode" if after[1] > before[1] else None
