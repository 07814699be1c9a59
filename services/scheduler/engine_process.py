"""The engine in a process of its own: nothing the event loop does can hold up a turn, as no interpreter is shared.

    worker (gRPC, Sessions)  ── messages ──►  engine process: an EngineThread and its small event loop
                             ◄── one frame per turn; load and age ten times a second while busy

This file is the worker's side; `engine_main` is the other. Frames are `wire` messages after four bytes of length.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from services.common.config import ConfigError
from services.scheduler import wire
from services.scheduler.cache.events import CacheSnapshot
from services.scheduler.core.counters import Counters
from services.scheduler.core.decisions import Decision
from services.scheduler.core.messages import LoadSnapshot
from services.scheduler.delivery import Delivery, EngineState, Facts, Message

log = logging.getLogger(__name__)

_LENGTH_BYTES = 4
_QUIET_S = 2.0  # a process that says less often than this is as silent as a turn that does not end
_LEAVE_S = 10.0


def frame(message: Any) -> bytes:
    """A message as it goes over the socket."""
    data = wire.encode(message)
    return len(data).to_bytes(_LENGTH_BYTES, "little") + data


async def read_frame(reader: asyncio.StreamReader) -> Any:
    """The next message, or None at the end of the stream."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "little")
        return wire.decode(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


class EngineProcess:
    """An `EngineClient` whose engine is another process; that one's end is a failure."""

    def __init__(
        self, argv: Sequence[str], epoch: int, on_turn: Callable[[Delivery], None], on_failure: Callable[[BaseException], None]
    ) -> None:
        """`argv` are the worker's own flags; the callbacks run in the event loop."""
        self._argv, self._epoch = tuple(argv), epoch
        self._on_turn, self._on_failure = on_turn, on_failure
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._ids = itertools.count()
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._state: EngineState | None = None
        self._heard = 0.0
        self._stopping = False

    @property
    def load(self) -> LoadSnapshot | None:
        return self._state.load if self._state is not None else None

    @property
    def counters(self) -> Counters:
        return self._state.counters if self._state is not None else Counters()

    @property
    def evicted_tokens(self) -> int:
        return self._state.evicted_tokens if self._state is not None else 0

    @property
    def eviction_ns(self) -> int:
        return self._state.eviction_ns if self._state is not None else 0

    async def start(self) -> Facts:
        """Start the process and wait until its model is loaded. Raises ConfigError."""
        here, there = socket.socketpair()
        command = [sys.executable, "-m", "services.scheduler.engine_main", str(there.fileno()), str(self._epoch), *self._argv]
        self._process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, pass_fds=(there.fileno(),))
        there.close()
        reader, self._writer = await asyncio.open_unix_connection(sock=here)
        first = await read_frame(reader)
        if first is None:
            raise RuntimeError(f"the engine process ended with code {await self._process.wait()} before it was ready")
        if first[0] == "failed":
            raise ConfigError(first[1]) if first[2] else RuntimeError(first[1])
        _, facts, state = first
        self._take_state(state)
        self._reading = asyncio.create_task(self._read(reader))
        ready: Facts = facts
        return ready

    def send(self, *messages: Message) -> None:
        """Hand messages to the scheduler's next turn, in order."""
        if messages and self._writer is not None:
            self._writer.write(frame(("tell", list(messages))))

    def turn_age_s(self) -> float:
        """Age of the last turn as last heard, and the silence since."""
        if self._state is None:
            return 0.0
        silence = time.monotonic() - self._heard
        return self._state.turn_age_s + silence if self._state.turn_age_s or silence > _QUIET_S else 0.0

    def dump_stacks(self) -> None:
        """Have the process write its threads' stacks."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGUSR1)

    async def decisions(self, count: int) -> Sequence[Decision]:
        """The newest decisions, newest last."""
        found: list[Decision] = await self._ask("decisions", count)
        return found

    async def cache_snapshot(self) -> CacheSnapshot:
        """All cached blocks."""
        snapshot: CacheSnapshot = await self._ask("cache_snapshot")
        return snapshot

    async def flush_cache(self) -> int | None:
        """Empty the prefix cache; None while choices live."""
        removed: int | None = await self._ask("flush_cache")
        return removed

    async def stop(self) -> None:
        """Close the connection, which ends the process after its turn; kill it if it does not leave."""
        self._stopping = True
        if self._writer is not None:
            self._writer.close()
        if self._reading is not None:
            self._reading.cancel()
        if self._process is not None:
            try:
                await asyncio.wait_for(self._process.wait(), _LEAVE_S)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()

    # ------------------------------------------------------------------ inside

    async def _ask(self, question: str, *arguments: Any) -> Any:
        if self._writer is None or self._stopping or (self._reading is not None and self._reading.done()):
            raise RuntimeError("the engine process is gone")
        number = next(self._ids)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self._writer.write(frame(("ask", number, question, arguments)))
        return await answer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        why = ""
        while (message := await read_frame(reader)) is not None:
            kind = message[0]
            self._heard = time.monotonic()
            if kind == "turn":
                self._on_turn(message[1])
            elif kind == "state":
                self._take_state(message[1])
            elif kind == "answer":
                self._answer(*message[1:])
            else:
                why = message[1]
        error = RuntimeError(why or "the engine process ended")
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(error)
        if not self._stopping:
            self._on_failure(error)

    def _answer(self, number: int, value: Any, error: str | None, state: EngineState) -> None:
        self._take_state(state)  # whoever asks next sees what the call changed
        answer = self._asked.pop(number)
        if answer.done():
            return
        if error is None:
            answer.set_result(value)
        else:
            answer.set_exception(RuntimeError(error))

    def _take_state(self, state: EngineState) -> None:
        self._state, self._heard = state, time.monotonic()
