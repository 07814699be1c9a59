"""Control calls, apart from the data plane."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from protos.scheduler.v1 import scheduler_pb2 as pb
from protos.scheduler.v1 import scheduler_pb2_grpc as pb_grpc
from services.common import log as logs
from services.common.errors import FailedPrecondition, InvalidRequest
from services.common.grpc_errors import abort
from services.common.instruments import Counter

_Context = grpc.aio.ServicerContext[Any, Any]
_FLUSH_POLL_S = 0.05


class AdminServicer(pb_grpc.SchedulerAdminServicer):
    """Flush, freeze, drain, log level. `flush` returns the tokens removed, or None while requests run or wait."""

    def __init__(self, flush: Callable[[], Awaitable[int | None]], drain: Callable[[], None], flushes: Counter) -> None:
        self._flush = flush
        self._drain = drain
        self._flushes = flushes

    async def FlushCache(self, request: pb.FlushCacheRequest, context: _Context) -> pb.FlushCacheResponse:
        deadline = asyncio.get_running_loop().time() + request.timeout_ms / 1000
        while (removed := await self._flush()) is None:
            if asyncio.get_running_loop().time() >= deadline:
                await abort(context, FailedPrecondition("requests are running or waiting; the cache was not flushed"))
            await asyncio.sleep(_FLUSH_POLL_S)
        self._flushes.inc()
        return pb.FlushCacheResponse(removed_tokens=removed)

    async def FreezeGc(self, request: pb.FreezeGcRequest, context: _Context) -> pb.FreezeGcResponse:
        gc.collect()
        gc.freeze()
        return pb.FreezeGcResponse(frozen_objects=gc.get_freeze_count())

    async def Drain(self, request: pb.DrainRequest, context: _Context) -> pb.DrainResponse:
        self._drain()
        return pb.DrainResponse()

    async def SetLogLevel(self, request: pb.SetLogLevelRequest, context: _Context) -> pb.SetLogLevelResponse:
        try:
            return pb.SetLogLevelResponse(previous=logs.set_level(request.level))
        except ValueError as error:
            await abort(context, InvalidRequest(f"level: {error}", field="level"))
