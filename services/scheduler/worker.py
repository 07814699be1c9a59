"""The scheduler-worker put together: one engine, three gRPC services, one hub between them."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from services.common.config import Sources
from services.common.metrics import Metrics
from services.common.server import ServiceHost
from services.scheduler.config import SchedulerConfig
from services.scheduler.delivery import Delivery, EngineClient, Facts
from services.scheduler.engine_client import Built, EngineThread
from services.scheduler.engine_process import EngineProcess
from services.scheduler.grammar.exported import export as export_grammars
from services.scheduler.hub import Hub
from services.scheduler.machine import Texts, build_machine, load_texts
from services.scheduler.report import StartupReport
from services.scheduler.servicer.doors import Doors
from services.scheduler.servicer.info import Identity
from services.scheduler.watchdog import Watchdog
from services.scheduler.worker_metrics import WorkerMetrics

log = logging.getLogger(__name__)

EXIT_ENGINE_FAILED = 70


class Worker:
    """One process. `run` returns its exit code."""

    def __init__(self, config: SchedulerConfig, sources: Sources, argv: Sequence[str], leave: Callable[[int], None] = os._exit) -> None:
        """`leave` ends the process without waiting for its threads."""
        self._config = config
        self._leave = leave
        self._sources = sources
        self._argv = tuple(argv)
        self._boot = secrets.randbits(63)
        self._report = StartupReport()
        self._texts: Texts | None = None
        self._hub = Hub()
        self._engine = self._client()
        self._hub.attach(self._engine)
        self._base_metrics = Metrics("scheduler", constant={"model_name": self._model_name})
        self._metrics = WorkerMetrics(self._base_metrics, self._engine, lambda: self._hub.sessions)
        self._host = ServiceHost(config, Doors.NAMES, metrics=self._base_metrics)
        self._doors = Doors(self._hub, self._engine, self._metrics, self._base_metrics, self._host.request_stop)
        self._failed = False

    async def run(self) -> int:
        """Bind, load, serve until a signal, drain. Raises ConfigError where the settings cannot be served."""
        self._doors.add_to(self._host.server)
        with self._report.phase("bind"):
            await self._host.start()
        loading = asyncio.create_task(self._engine.start())
        leaving = asyncio.create_task(self._host.run(self._drain))
        await asyncio.wait({loading, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if loading.done():
            if error := loading.exception():
                self._host.request_stop()
                await leaving
                raise error
            await self._open(loading.result())
            watchdog = asyncio.create_task(self._watchdog().run())
            code = await leaving
            watchdog.cancel()
            await self._engine.stop()
        else:  # told to leave while loading, which a compiler may make minutes: nothing of it is worth waiting for
            code = await leaving
            logging.shutdown()
            self._leave(code)
        return EXIT_ENGINE_FAILED if self._failed else code

    async def _open(self, facts: Facts) -> None:
        """Everything is loaded: let requests in."""
        if self._texts is None:  # the engine's process has its own
            self._texts = await asyncio.to_thread(load_texts, self._config, facts.info)
        if facts.report is not self._report:
            facts.report.phases[:0] = self._report.phases
        self._doors.open(facts, self._texts, self._identity(facts, self._texts))
        self._metrics.on_start(facts)
        if self._config.grammar_backend != "none":
            export_grammars(self._texts.grammars.store, self._base_metrics)
        log.info(facts.report.text(), extra={"report": True})
        await self._host.set_ready(True)
        log.info("ready", extra={"model": self._model_name})

    @property
    def _model_name(self) -> str:
        config = self._config
        return config.served_model_name or (Path(config.model_path).stem if config.model_path else "scripted")

    def _identity(self, facts: Facts, texts: Texts) -> Identity:
        return Identity(
            boot_id=f"{self._boot:016x}",
            model=self._model_name,
            model_path=self._config.model_path or "",
            architecture=facts.architecture,
            tokenizer_digest=texts.stops.tokenizer_digest,
            weight_version=self._config.weight_version,
            launch_command=(sys.executable, "-m", "services.scheduler", *self._argv),
        )

    def _watchdog(self) -> Watchdog:
        async def on_stuck() -> None:
            await self._host.set_alive(False)
            await self._host.set_ready(False)

        config = self._config
        return Watchdog(
            self._engine.turn_age_s,
            timeout_s=config.watchdog_timeout,
            soft_timeout_s=config.soft_watchdog_timeout,
            on_stuck=on_stuck,
            also_dump=self._engine.dump_stacks,
        )

    async def _drain(self) -> None:
        await self._hub.drain(int(self._config.drain_timeout * 1000))

    # ------------------------------------------------------------------ the engine, and what its client calls

    def _client(self) -> EngineClient:
        if self._config.engine_client == "process":
            return EngineProcess(self._argv, self._boot, self._on_turn, self._on_failure)
        return EngineThread(self._build, self._on_turn, self._on_failure)

    def _build(self) -> Built:
        machine = build_machine(self._config, self._sources.of, self._boot, self._report)
        self._texts = machine.texts
        return machine.built

    def _on_turn(self, delivery: Delivery) -> None:
        self._hub.on_turn(delivery)
        if delivery.events is not None:
            self._doors.cache.publish(delivery.events)
        self._metrics.on_turn(delivery)

    def _on_failure(self, error: BaseException) -> None:
        """The engine died: end every Session, so that gateways carry their requests elsewhere, and leave."""
        log.error("leaving because the engine failed", extra={"error": repr(error)})
        self._failed = True
        self._hub.fail()
        self._host.request_stop()
