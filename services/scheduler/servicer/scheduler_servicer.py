"""The data plane: Session, Generate, and what people ask about a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from protos.scheduler.v1 import scheduler_pb2 as pb
from protos.scheduler.v1 import scheduler_pb2_grpc as pb_grpc
from services.common.errors import HeadraceError, Internal, Unavailable, from_proto
from services.common.grpc_errors import abort
from services.scheduler.servicer.info import WorkerInfo
from services.scheduler.servicer.session import Session, SessionDeps

_Context = grpc.aio.ServicerContext[Any, Any]
_DISCONNECT = int(pb.CANCEL_CAUSE_CLIENT_DISCONNECT)
_ABORT = int(pb.CANCEL_CAUSE_ABORT_REQUEST)


class SchedulerServicer(pb_grpc.SchedulerServicer):
    """One worker's requests. `deps` is there once the model is loaded; until then calls are refused."""

    def __init__(self) -> None:
        self._deps: SessionDeps | None = None
        self._info: WorkerInfo | None = None

    def open_for_business(self, deps: SessionDeps, info: WorkerInfo) -> None:
        """Everything is loaded."""
        self._deps, self._info = deps, info

    async def Session(self, request_iterator: AsyncIterator[pb.ToWorker], context: _Context) -> None:
        """Reader and writer of one stream; either's end is the Session's end."""
        deps = await self._ready(context, new_session=True)
        session = Session(deps)
        reader = asyncio.create_task(_read(request_iterator, session))
        writer = asyncio.create_task(_write(session, context.write))
        try:
            await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
            if reader.done() and not reader.exception():  # the peer will send no more: finish what runs
                while session.has_work and not writer.done():
                    await asyncio.wait({writer}, timeout=0.05)
        finally:
            session.close(_DISCONNECT)
            reader.cancel()
            writer.cancel()
            results = await asyncio.gather(reader, writer, return_exceptions=True)
        for result in results:
            if isinstance(result, HeadraceError):
                await abort(context, result)

    async def Generate(self, request: pb.GenerateRequest, context: _Context) -> AsyncIterator[pb.GenerateResponse]:
        """A Session of one request. What fails before anything was said is the call's status."""
        session = Session(await self._ready(context, new_session=True), greet=False)
        said = False
        try:
            session.receive(pb.ToWorker(submit=[request.submit]))
            while session.has_work:
                for frame in await session.due():
                    if not said and frame.final and frame.final[0].HasField("error") and not frame.HasField("step"):
                        await abort(context, from_proto(frame.final[0].error))
                    said = said or bool(frame.accepted or frame.started)
                    yield pb.GenerateResponse(frame=frame)
        except HeadraceError as error:
            await abort(context, error)
        finally:
            session.close(_DISCONNECT)

    async def Abort(self, request: pb.AbortRequest, context: _Context) -> pb.AbortResponse:
        deps = await self._ready(context)
        if not request.all and not request.request_id:
            return pb.AbortResponse()
        return pb.AbortResponse(aborted=deps.hub.abort(None if request.all else request.request_id, _ABORT))

    async def GetModelInfo(self, request: pb.GetModelInfoRequest, context: _Context) -> pb.GetModelInfoResponse:
        return (await self._facts(context)).model_info()

    async def GetServerInfo(self, request: pb.GetServerInfoRequest, context: _Context) -> pb.GetServerInfoResponse:
        return await (await self._facts(context)).server_info(request.decisions)

    async def GetLoad(self, request: pb.GetLoadRequest, context: _Context) -> pb.GetLoadResponse:
        return pb.GetLoadResponse(load=(await self._ready(context)).load())

    async def _ready(self, context: _Context, *, new_session: bool = False) -> SessionDeps:
        deps = self._deps
        if deps is None:
            await abort(context, Unavailable("the model is being loaded", code="loading"))
        if new_session and deps.hub.draining:
            await abort(context, Unavailable("this worker is draining", code="draining"))
        return deps

    async def _facts(self, context: _Context) -> WorkerInfo:
        await self._ready(context)
        assert self._info is not None
        return self._info


async def _read(frames: AsyncIterator[pb.ToWorker], session: Session) -> None:
    async for frame in frames:
        session.receive(frame)


async def _write(session: Session, write: Callable[[pb.FromWorker], Any]) -> None:
    while found := await session.due():
        for frame in found:
            await write(frame)
    raise Internal("the Session is closed")
