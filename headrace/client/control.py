"""Control calls to workers: `python -m headrace.client.control TOKEN_FILE HOST:PORT …` freezes their garbage collectors.

A process of its own, so that the launcher need not keep grpc in memory for one call.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import grpc

from protos.scheduler.v1 import scheduler_pb2 as pb
from protos.scheduler.v1 import scheduler_pb2_grpc as pb_grpc
from services.common.channel import call_metadata, open_channel
from services.common.server_config import ServerConfig

_TIMEOUT_S = 20.0


async def freeze_gc(target: str, trust: ServerConfig | None = None) -> int:
    """What survived the warm-up is never looked at again; returns the number of objects. Raises AioRpcError."""
    async with open_channel(target, trust) as channel:
        stub = pb_grpc.SchedulerAdminStub(channel)  # type: ignore[no-untyped-call]
        answer = await stub.FreezeGc(pb.FreezeGcRequest(), timeout=_TIMEOUT_S, metadata=call_metadata(trust))
    return int(answer.frozen_objects)


async def _freeze_all(targets: Sequence[str], trust: ServerConfig | None) -> None:
    for target, frozen in zip(targets, await asyncio.gather(*(freeze_gc(target, trust) for target in targets)), strict=True):
        print(f"{target}: {frozen} objects frozen")


def main(argv: Sequence[str]) -> int:
    """Exit code 0, or 1 with the reason on standard error."""
    trust = ServerConfig(token_file=argv[0]) if argv[0] else None
    try:
        asyncio.run(_freeze_all(argv[1:], trust))
    except grpc.aio.AioRpcError as error:
        print(f"{error.code().name}: {error.details()}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
