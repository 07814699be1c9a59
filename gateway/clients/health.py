"""grpc.health.v1 as the gateway uses it on its workers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.common.channel import call_metadata, open_channel
from services.common.errors import Unavailable
from services.common.grpc_errors import from_rpc_error
from services.common.server_config import ServerConfig

SCHEDULER = "headrace.scheduler.v1.Scheduler"


class WatchUnsupported(Exception):
    """The server has no Watch: ask again and again instead."""


class HealthClient:
    """Health of one worker's service."""

    def __init__(self, address: str, trust: ServerConfig | None, *, service: str = SCHEDULER) -> None:
        self._channel = open_channel(address, trust)
        self._stub = health_pb2_grpc.HealthStub(self._channel)
        self._metadata = call_metadata(trust)
        self._request = health_pb2.HealthCheckRequest(service=service)

    async def watch(self) -> AsyncIterator[bool]:
        """Serving or not, now and at every change. Raises WatchUnsupported, or Unavailable when the worker is lost."""
        call = self._stub.Watch(self._request, metadata=self._metadata)
        try:
            async for answer in call:
                yield answer.status == health_pb2.HealthCheckResponse.SERVING
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                raise WatchUnsupported from error
            raise from_rpc_error(error) from error
        finally:
            call.cancel()
        raise Unavailable("the health service ended its watch")

    async def check(self, timeout_s: float) -> bool:
        """Serving or not, now. Raises HeadraceError when the worker is lost or slow."""
        try:
            answer = await self._stub.Check(self._request, timeout=timeout_s, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    async def close(self) -> None:
        """End whatever runs."""
        await self._channel.close(None)
