"""The `headrace up` command: resolve the model, plan, start, announce, wait, stop."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from headrace.launcher import announce
from headrace.launcher.args import Settings, SplitArguments, check, split
from headrace.launcher.help import help_text
from headrace.launcher.plan import Machine, plan
from headrace.launcher.ports import Ports, assign
from headrace.launcher.startup import StartupFailed, door_of, freeze_workers, server_report, wait_until_ready, warm_up
from headrace.launcher.supervisor import GivenUp, Supervisor
from headrace.models.errors import ModelError
from headrace.models.resolve import Resolved, resolve
from headrace.models.store import ModelStore
from services.common.config import ConfigError, cache_dir

_ONE_SIGNAL_S = 0.5  # a signal to the group reaches the launcher twice when make passes it on as well


def main(argv: Sequence[str]) -> int:
    """Runs until stopped. Exit code 0 after a clean stop, 1 if it could not start or go on, 2 for unusable flags."""
    if "-h" in argv or "--help" in argv:
        print(help_text())
        return 0
    begin = time.monotonic()
    try:
        arguments = split(argv)
        settings = check(arguments)
        ports = assign(settings.up.port, settings.up.host, settings.up.workers, chosen=settings.given_ports())
        model = resolve(settings.up.model, ModelStore(cache_dir()), announce.own)
    except (ConfigError, ModelError, OSError) as error:
        print(f"headrace up: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        return 130
    return asyncio.run(_Run(settings, arguments, model, ports, time.monotonic() - begin).run())


class _Run:
    """One life of the suite."""

    def __init__(self, settings: Settings, arguments: SplitArguments, model: Resolved, ports: Ports, model_s: float) -> None:
        self._config, self._model, self._ports = settings.up, model, ports
        self._specs = plan(settings.up, arguments, model, ports, Machine(cores=len(os.sched_getaffinity(0))))
        self._door = door_of(replace(settings.services["gateway"], host=settings.up.host), ports.rest)
        self._token_file = settings.services["scheduler"].token_file or ""
        self._phases = {"model": model_s}
        self._stop = asyncio.Event()
        self._first_signal = 0.0
        self._serving = False

    async def run(self) -> int:
        supervisor = Supervisor(self._specs, announce.say)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal, supervisor)
        await supervisor.start()
        code = 0
        try:
            await self._until_stopped(supervisor)
        except (GivenUp, StartupFailed) as error:
            announce.own(str(error))
            code = 1
        if not self._serving:
            supervisor.hurry()  # there is nothing in flight yet
        announce.own("stopping: no new requests, those in flight are finished" if self._serving else "stopping")
        clean = await supervisor.stop(self._config.stop_timeout)
        announce.own("stopped" if clean else "stopped; not every process left by itself")
        return code

    async def _until_stopped(self, supervisor: Supervisor) -> None:
        """Bring the suite up and wait for the signal. Raises GivenUp or StartupFailed."""
        start = asyncio.ensure_future(self._bring_up())
        stop = asyncio.ensure_future(self._stopped())
        failed = asyncio.ensure_future(_raise(supervisor.failure))
        try:
            await asyncio.wait({start, stop, failed}, return_when=asyncio.FIRST_COMPLETED)
            if start.done() and not failed.done():
                start.result()
                await asyncio.wait({stop, failed}, return_when=asyncio.FIRST_COMPLETED)
            if failed.done():
                failed.result()
        finally:
            for task in (start, stop, failed):
                task.cancel()
            await asyncio.gather(start, stop, failed, return_exceptions=True)

    async def _stopped(self) -> None:
        await self._stop.wait()

    def _on_signal(self, supervisor: Supervisor) -> None:
        now = time.monotonic()
        if not self._stop.is_set():
            self._first_signal = now
            self._stop.set()
        elif now - self._first_signal > _ONE_SIGNAL_S:
            supervisor.hurry()

    async def _bring_up(self) -> None:
        door = self._door
        announce.own(f"starting {', '.join(spec.name for spec in self._specs)}")
        self._phases["services"] = await wait_until_ready(door, self._config.startup_timeout)
        if not self._config.skip_server_warmup:
            announce.own("warm-up: one request through every service")
            self._phases["warm-up"] = await warm_up(door)
        self._serving = True
        rest = ("https://" if door.tls else "http://") + announce.address(self._config.host, self._ports.rest)
        grpc = announce.address(self._config.host, self._ports.grpc)
        report = await server_report(door)
        wrong = await freeze_workers([f"127.0.0.1:{port}" for port, _ in self._ports.workers], self._token_file)
        if wrong:
            announce.own(f"the workers' garbage collectors are not frozen: {wrong}")
        print(announce.ready(self._model.name, rest, grpc, report, self._phases, with_key=bool(door.api_key)), flush=True)


async def _raise(failure: asyncio.Future[GivenUp]) -> None:
    raise await failure
