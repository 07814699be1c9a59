"""`python -m services.scheduler.engine_main FD EPOCH flags…`: the engine's side of `engine_process`. Started by the worker only."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from services.common import log as logs
from services.common.config import ConfigError, Sources, load
from services.common.errors import HeadraceError
from services.scheduler.config import SchedulerConfig
from services.scheduler.core.messages import ErrorCode, ErrorInfo, Final, FinishReason, SubmitRequest, Timings, TurnOutput, Usage
from services.scheduler.delivery import Delivery, EngineState, Submit
from services.scheduler.engine_client import Built, EngineThread
from services.scheduler.engine_process import frame, read_frame
from services.scheduler.machine import Texts, build_machine
from services.scheduler.report import StartupReport
from services.scheduler.text_rules import bind

log = logging.getLogger(__name__)

_BUSY_PULSE_S = 0.1
_IDLE_PULSE_S = 1.0
_QUESTIONS = ("decisions", "cache_snapshot", "flush_cache")
_LAST_TURN_S = 5.0


def main(argv: Sequence[str]) -> int:
    """Serve one worker until it is gone."""
    descriptor, epoch, *flags = argv
    config, sources = load(SchedulerConfig, flags, prog="headrace serve scheduler (engine)")
    logs.setup("engine", level=config.log_level, style=config.log_format)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the worker drains; its end is this process's signal
    faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True)
    asyncio.run(_Side(config, sources, int(epoch)).serve(socket.socket(fileno=int(descriptor))))
    return 0


class _Side:
    """One engine thread, and the frames to and from it."""

    def __init__(self, config: SchedulerConfig, sources: Sources, epoch: int) -> None:
        self._config, self._sources, self._epoch = config, sources, epoch
        self._texts: Texts | None = None
        self._engine = EngineThread(self._build, self._on_turn, self._on_failure)
        self._writer: asyncio.StreamWriter | None = None

    async def serve(self, connection: socket.socket) -> None:
        reader, self._writer = await asyncio.open_unix_connection(sock=connection)
        first = asyncio.create_task(read_frame(reader))  # nothing is said before "ready": it ends early only if the worker is gone
        starting = asyncio.create_task(self._engine.start())
        await asyncio.wait({first, starting}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            os._exit(0)
        try:
            facts = starting.result()
        except Exception as error:
            self._say("failed", str(error), isinstance(error, ConfigError))
            with contextlib.suppress(ConnectionError):
                await self._writer.drain()
            return
        gc.collect()
        gc.freeze()
        self._say("ready", facts, self._state())
        pulse = asyncio.create_task(self._pulse())
        message = await first
        while message is not None:
            if message[0] == "tell":
                self._engine.send(*(item for item in map(self._bound, message[1]) if item is not None))
            else:
                await self._answer(*message[1:])
            message = await read_frame(reader)
        pulse.cancel()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._engine.stop(), _LAST_TURN_S)
        logging.shutdown()
        os._exit(0)  # a turn that does not end shall not keep the process

    def _build(self) -> Built:
        machine = build_machine(self._config, self._sources.of, self._epoch, StartupReport())
        self._texts = machine.texts
        return machine.built

    def _bound(self, message: Any) -> Any:
        """The message with what could not travel; None for a request that cannot be served, whose finals are said at once."""
        if not isinstance(message, Submit):
            return message
        assert self._texts is not None
        request = message.request
        try:
            matcher, grammar = bind(request.texts, request.prompt_ids, self._texts.stops, self._texts.grammars)
        except HeadraceError as error:
            self._on_turn(Delivery(TurnOutput(-1, finals=_refusals(request, error)), None, None))
            return None
        return Submit(replace(request, stop_matcher=matcher, grammar=grammar))

    async def _answer(self, number: int, question: str, arguments: tuple[Any, ...]) -> None:
        value, wrong = None, None
        try:
            if question not in _QUESTIONS:
                raise ValueError(f"unknown question {question!r}")
            value = await getattr(self._engine, question)(*arguments)
        except Exception as error:
            wrong = str(error)
        self._say("answer", number, list(value) if question == "decisions" and value else value, wrong, self._state())

    async def _pulse(self) -> None:
        while True:
            self._say("state", self._state())
            await asyncio.sleep(_BUSY_PULSE_S if self._engine.busy_since_ns else _IDLE_PULSE_S)

    def _state(self) -> EngineState:
        engine = self._engine
        assert engine.load is not None
        return EngineState(engine.load, engine.counters, engine.evicted_tokens, engine.eviction_ns, engine.turn_age_s())

    def _on_turn(self, delivery: Delivery) -> None:
        self._say("turn", delivery)

    def _on_failure(self, error: BaseException) -> None:
        self._say("died", repr(error))
        assert self._writer is not None
        self._writer.close()

    def _say(self, *message: Any) -> None:
        assert self._writer is not None
        if not self._writer.is_closing():
            self._writer.write(frame(message))


def _refusals(request: SubmitRequest, error: HeadraceError) -> list[Final]:
    said = ErrorInfo(ErrorCode.INVALID_REQUEST, error.message, error.field or "")
    usage, never = Usage(int(request.prompt_ids.size), 0, 0), Timings(None, None, None, 0)
    return [Final(choice.handle, FinishReason.ERROR, 0, usage, never, error=said) for choice in request.choices]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
