"""The running gateway: its doors, its links, its end."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import logging
import os
import ssl
from collections.abc import Coroutine
from typing import Any

from aiohttp import web

from gateway.api.connection import Connection, ConnectionLimits
from gateway.api.http_app import make_app
from gateway.build import Parts, build
from gateway.config import GatewayConfig
from gateway.report import settings_report
from services.common.config import ConfigError, Sources
from services.common.metrics import Metrics
from services.common.server import ServiceHost

log = logging.getLogger(__name__)

SERVICE_NAME = "headrace.gateway.v1.Gateway"
_METRICS_OFFSET = 1000
_FREEZE_AFTER_S = 1.0


class GatewayApp:
    """One gateway process. Use: `await start()`, then `await run()`."""

    def __init__(self, config: GatewayConfig, sources: Sources) -> None:
        self._config = config
        self.metrics = Metrics("gateway", constant={"process": str(os.getpid())} if config.shared_port else None)
        self.parts: Parts = build(config, self.metrics)
        self._sources = sources
        self._draining = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._runner: web.AppRunner | None = None
        self._rest: asyncio.Server | None = None
        self.host = ServiceHost(_front_config(config), [SERVICE_NAME], metrics=self.metrics, reuse_port=config.shared_port)
        self.port = 0

    async def start(self) -> None:
        """Connect to the services and open the doors. Raises ConfigError for an address that cannot be had."""
        parts = self.parts
        from gateway.api.grpc_front import GatewayFront

        GatewayFront(parts.doors, self._draining).register(self.host.server)
        parts.text.start()
        parts.pool.start()
        parts.fleet.start()
        parts.discovery.start()
        self._spawn(parts.discovery.run())
        self._spawn(parts.tokenizer.watch())
        self._spawn(parts.doors.keeper.run())
        self._spawn(self._watch_readiness())
        await self._open_rest()
        await self.host.start()

    async def run(self) -> int:
        """Serve until signalled, drain, leave. Returns the exit code."""
        try:
            return await self.host.run(self.drain)
        finally:
            await self.close()

    async def drain(self) -> None:
        """New requests are turned away, running ones end in peace."""
        self._draining.set()
        await self.parts.doors.pipeline.wait_idle()

    async def close(self) -> None:
        """End everything at once."""
        self._draining.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._rest is not None:
            self._rest.close()
        if self._runner is not None:
            await self._runner.cleanup()
        await self.parts.fleet.close()
        await self.parts.pool.close()
        await self.parts.text.close()
        await self.parts.tokenizer.close()
        await self.parts.doors.checker.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def _open_rest(self) -> None:
        config = self._config
        app = make_app(
            self.parts.doors,
            draining=self._draining,
            report=settings_report(config, self._sources),
            metrics=self.metrics.registry if config.metrics_on_main_port else None,
        )
        self._runner = web.AppRunner(app, handler_cancellation=True, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        limits = ConnectionLimits(config.max_header_bytes, config.header_timeout_secs, config.keep_alive_timeout_secs)
        try:
            self._rest = await asyncio.get_running_loop().create_server(
                lambda: Connection(server, limits),
                config.host,
                config.port,
                ssl=_tls(config),
                reuse_port=config.shared_port or None,
                backlog=1024,
            )
        except OSError as error:
            raise ConfigError(f"--port: cannot listen on {config.host}:{config.port}: {error}") from error
        self.port = self._rest.sockets[0].getsockname()[1]
        log.info("rest door open", extra={"address": f"{config.host}:{self.port}"})

    async def _watch_readiness(self) -> None:
        """The gRPC door's health follows what /ready says; the first time, what startup made is set aside for good."""
        from gateway.api.probes import not_ready

        was_ready = False
        while True:
            is_ready = not not_ready(self.parts.doors, draining=self._draining.is_set() or self.host.draining)
            if is_ready and not was_ready:
                gc.collect()
                gc.freeze()
            if is_ready != was_ready:
                await self.host.set_ready(is_ready)
                was_ready = is_ready
            if self.host.draining:
                self._draining.set()
            await asyncio.sleep(0.1)


def _front_config(config: GatewayConfig) -> GatewayConfig:
    """Settings of the gRPC door: its own port; callers show API keys, not the services' token or certificates."""
    grpc_port = config.grpc_port if config.grpc_port >= 0 else (config.port + 1 if config.port else 0)
    metrics_port = config.metrics_port
    if metrics_port == -1:
        metrics_port = config.port + _METRICS_OFFSET if config.port and not config.shared_port else 0
    return dataclasses.replace(config, port=grpc_port, metrics_port=metrics_port, token_file=None, tls_ca=None)


def _tls(config: GatewayConfig) -> ssl.SSLContext | None:
    if config.tls_cert is None or config.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(config.tls_cert, config.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"--tls-cert: {error}") from error
    return context
