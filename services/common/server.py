"""What all gRPC servers of the suite share: bind, health, reflection, metrics port, signals, drain.

Health names (grpc.health.v1): the empty name says the process is alive, the service's full name says it is ready for
new work. A signal makes the service not ready at once and starts the drain; a second one ends it. SIGUSR1 logs everything,
SIGUSR2 what the settings say.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Sequence

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio  # type: ignore[attr-defined]
from grpc_reflection.v1alpha import reflection
from prometheus_client import REGISTRY, CollectorRegistry, start_http_server

from services.common import log as logs
from services.common.config import ConfigError
from services.common.grpc_malformed import MalformedInterceptor
from services.common.grpc_metrics import MetricsInterceptor
from services.common.grpc_options import SERVER_OPTIONS
from services.common.loop_lag import watch_loop
from services.common.metrics import Metrics
from services.common.server_config import ServerConfig
from services.common.trust import TokenInterceptor, read_token, server_credentials

log = logging.getLogger(__name__)

Drain = Callable[[], Awaitable[None]]

_ORPHAN_GRACE_S = 2.0
_STOP_GRACE_S = 1.0
_METRICS_OFF = -2
_METRICS_BESIDE = -1
_METRICS_OFFSET = 1000


class ServiceHost:
    """Runs one gRPC server from bind to exit.

    Use: build, add servicers to `server`, `await start()`, load what must be loaded, `await set_ready(True)`,
    `await run(drain)`. `drain` returns when the running work is done; it is cancelled when the grace ends.
    """

    def __init__(
        self,
        config: ServerConfig,
        services: Sequence[str],
        *,
        metrics: Metrics | None = None,
        registry: CollectorRegistry = REGISTRY,
        reuse_port: bool = False,
    ) -> None:
        """`services`: full names, such as "headrace.tokenizer.v1.Tokenizer"; the first is the one readiness is about.

        `metrics` are served in place of `registry`, and gain what every server can say of itself.
        `reuse_port`: other processes may listen on the same port; each connection goes to one of them.
        """
        self._config = config
        self._services = tuple(services)
        self._registry = registry if metrics is None else metrics.registry
        self._metrics = metrics
        self._lag: asyncio.Task[None] | None = None
        self._ready = False
        token = read_token(config.token_file)
        interceptors: list[grpc.aio.ServerInterceptor] = []  # type: ignore[type-arg]
        if metrics is not None:
            metrics.gauge("headrace_ready").read(lambda: self._ready and not self.draining)
            metrics.gauge("headrace_draining").read(lambda: self.draining)
            interceptors.append(MetricsInterceptor(metrics))
        if token is not None:
            interceptors.append(TokenInterceptor(token))
        interceptors.append(MalformedInterceptor())
        options = list((dict(SERVER_OPTIONS) | {"grpc.so_reuseport": int(reuse_port)}).items())
        self.server: grpc.aio.Server = grpc.aio.server(options=options, interceptors=interceptors)
        self._health = health_aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.server)
        names = (*self._services, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self.server)
        self._signals = 0
        self._first_signal = asyncio.Event()
        self._hurry = asyncio.Event()
        self._orphaned = False
        self.port = 0
        self.metrics_port: int | None = None

    @property
    def draining(self) -> bool:
        """True from the first signal on."""
        return self._first_signal.is_set()

    async def start(self) -> None:
        """Bind and serve health, reflection and metrics. Raises ConfigError if a port cannot be had."""
        address = f"{'[' + self._config.host + ']' if ':' in self._config.host else self._config.host}:{self._config.port}"
        credentials = server_credentials(self._config)
        try:
            self.port = self.server.add_insecure_port(address) if credentials is None else self.server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise ConfigError(f"--port: cannot listen on {address}: {error}") from error
        if self.port == 0:
            raise ConfigError(f"--port: cannot listen on {address}")
        await self.set_alive(True)
        await self.set_ready(False)
        self._install_signals()
        await self.server.start()
        self._start_metrics()
        if self._metrics is not None:
            self._lag = asyncio.create_task(watch_loop(self._metrics))
        log.info("listening", extra={"address": f"{self._config.host}:{self.port}", "metrics_port": self.metrics_port, "pid": os.getpid()})

    def _start_metrics(self) -> None:
        wanted = self._config.metrics_port
        if wanted == _METRICS_OFF:
            return
        port = self.port + _METRICS_OFFSET if wanted == _METRICS_BESIDE else wanted
        if port > 65535:
            raise ConfigError(f"--metrics-port: {port} is out of range; give it explicitly")
        try:
            httpd, _ = start_http_server(port, addr=self._config.host, registry=self._registry)
        except OSError as error:
            raise ConfigError(f"--metrics-port: cannot listen on {self._config.host}:{port}: {error}") from error
        self.metrics_port = httpd.server_port

    async def set_alive(self, alive: bool) -> None:
        """Set the answer for the empty health name (liveness)."""
        await self._health.set("", _status(alive))

    async def set_ready(self, ready: bool) -> None:
        """Set the answer for every service name (readiness)."""
        self._ready = ready
        for name in self._services:
            await self._health.set(name, _status(ready and not self.draining))

    def _install_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        loop.add_signal_handler(signal.SIGUSR1, logs.switch_level, "debug")
        loop.add_signal_handler(signal.SIGUSR2, logs.switch_level, self._config.log_level)
        if self._config.parent_pipe >= 0:
            loop.add_reader(self._config.parent_pipe, self._on_parent_gone)

    def _on_signal(self, number: int) -> None:
        self._signals += 1
        log.info("signal", extra={"signal": signal.Signals(number).name, "count": self._signals})
        self._first_signal.set()
        if self._signals > 1 or self._config.force_shutdown:
            self._hurry.set()

    def _on_parent_gone(self) -> None:
        asyncio.get_running_loop().remove_reader(self._config.parent_pipe)
        log.warning("parent process is gone")
        self._orphaned = True
        self._first_signal.set()

    def request_stop(self) -> None:
        """Begin to drain as if signalled."""
        self._first_signal.set()

    async def run(self, drain: Drain | None = None) -> int:
        """Wait for a signal (or the parent's end), drain, stop. Returns the process's exit code, 0."""
        await self._first_signal.wait()
        await self.set_ready(False)
        grace = _ORPHAN_GRACE_S if self._orphaned else self._config.drain_timeout
        if drain is not None and not self._hurry.is_set():
            await self._drain(drain, grace)
        await self.server.stop(_STOP_GRACE_S)
        if self._lag is not None:
            self._lag.cancel()
        log.info("stopped")
        return 0

    async def _drain(self, drain: Drain, grace: float) -> None:
        work = asyncio.ensure_future(drain())
        hurry = asyncio.ensure_future(self._hurry.wait())
        done, pending = await asyncio.wait({work, hurry}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        if work in done and (error := work.exception()) is not None:
            log.error("drain failed", exc_info=error)
        elif work not in done:
            log.warning("drain ended before the work did", extra={"grace_s": grace, "hurried": self._hurry.is_set()})


def _status(good: bool) -> health_pb2.HealthCheckResponse.ServingStatus:
    serving = health_pb2.HealthCheckResponse.SERVING
    return serving if good else health_pb2.HealthCheckResponse.NOT_SERVING
