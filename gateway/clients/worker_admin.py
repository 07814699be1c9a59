"""Calls to workers outside the Sessions: information, load, flush, abort."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
from google.protobuf.json_format import MessageToDict

from gateway.clients.scheduler import WorkerSession
from gateway.clients.worker_pool import WorkerPool
from protos.scheduler.v1 import scheduler_pb2 as pb
from protos.scheduler.v1 import scheduler_pb2_grpc as pb_grpc
from services.common.channel import call_metadata
from services.common.errors import HeadraceError
from services.common.grpc_errors import from_rpc_error
from services.common.server_config import ServerConfig

R = TypeVar("R")

_TIMEOUT_S = 10.0


class WorkerAdmin:
    """Asks all workers of the pool at once."""

    def __init__(self, pool: WorkerPool, trust: ServerConfig | None) -> None:
        self._pool = pool
        self._trust = trust

    async def abort(self, request_id: str = "", *, all_requests: bool = False) -> int:
        """End a request in whichever worker it runs, whoever sent it there. Returns how many workers had it."""
        request = pb.AbortRequest(request_id=request_id, all=all_requests)
        answers = await self._each(lambda session: self._scheduler(session).Abort(request, **self._options()))
        return sum(answer.aborted for _, answer in answers if not isinstance(answer, HeadraceError))

    async def flush(self, timeout_s: float) -> list[dict[str, Any]]:
        """Empty every worker's prefix cache. Raises the first refusal."""
        request = pb.FlushCacheRequest(timeout_ms=int(timeout_s * 1000))
        options = self._options(timeout_s)
        answers = await self._each(lambda session: self._admin(session).FlushCache(request, **options))
        made = []
        for address, answer in answers:
            if isinstance(answer, HeadraceError):
                raise answer
            made.append({"worker": address, "removed_tokens": answer.removed_tokens})
        return made

    async def server_info(self, decisions: int = 0) -> list[dict[str, Any]]:
        """What each worker says of itself, settings and startup report included."""
        request = pb.GetServerInfoRequest(decisions=decisions)
        answers = await self._each(lambda session: self._scheduler(session).GetServerInfo(request, **self._options()))
        return [{"worker": address, **_plain(answer)} for address, answer in answers]

    async def model_info(self) -> list[dict[str, Any]]:
        """What each worker serves."""
        answers = await self._each(lambda session: self._scheduler(session).GetModelInfo(pb.GetModelInfoRequest(), **self._options()))
        return [{"worker": address, **_plain(answer)} for address, answer in answers]

    async def loads(self) -> list[dict[str, Any]]:
        """Each worker's load, asked now."""
        answers = await self._each(lambda session: self._scheduler(session).GetLoad(pb.GetLoadRequest(), **self._options()))
        return [{"worker": address, **(_plain(answer).get("load") or _plain(answer))} for address, answer in answers]

    def _options(self, extra_s: float = 0.0) -> dict[str, Any]:
        return {"timeout": _TIMEOUT_S + extra_s, "metadata": call_metadata(self._trust)}

    def _scheduler(self, session: WorkerSession) -> Any:
        return pb_grpc.SchedulerStub(session.channel)  # type: ignore[no-untyped-call]

    def _admin(self, session: WorkerSession) -> Any:
        return pb_grpc.SchedulerAdminStub(session.channel)  # type: ignore[no-untyped-call]

    async def _each(self, call: Callable[[WorkerSession], Awaitable[R]]) -> list[tuple[str, R | HeadraceError]]:
        async def one(session: WorkerSession) -> tuple[str, R | HeadraceError]:
            try:
                return session.address, await call(session)
            except grpc.aio.AioRpcError as error:
                return session.address, from_rpc_error(error)

        return list(await asyncio.gather(*(one(session) for session in self._pool.sessions() if session.connected)))


def _plain(answer: Any) -> dict[str, Any]:
    if isinstance(answer, HeadraceError):
        return {"error": answer.message}
    made: dict[str, Any] = MessageToDict(answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    for name in list(made):
        value = made[name]
        if name.endswith("_json") and isinstance(value, str):
            made[name.removesuffix("_json")] = json.loads(value) if value else None
            del made[name]
    numbered: dict[str, Any] = _numbers(made)
    return numbered


def _numbers(value: Any) -> Any:
    """64 bit integers come as strings; as JSON numbers they are what clients expect."""
    if isinstance(value, dict):
        return {name: _numbers(inner) if name not in ("value", "boot_id") else inner for name, inner in value.items()}
    if isinstance(value, list):
        return [_numbers(inner) for inner in value]
    return int(value) if isinstance(value, str) and value.isdigit() and len(value) < 20 else value
