"""What a worker publishes of its cache and load, as plain values."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc

from gateway.clients.scheduler_convert import load
from gateway.prefix.feed import Cleared, Event, Removed, Stored, Update
from gateway.workers.worker import LoadReport
from protos.scheduler.v1 import cache_events_pb2 as pb
from protos.scheduler.v1 import cache_events_pb2_grpc as pb_grpc
from services.common.channel import call_metadata, open_channel
from services.common.grpc_errors import from_rpc_error
from services.common.server_config import ServerConfig


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """First word of a subscription. publishes_blocks is False where only load will follow."""

    boot_id: str
    model: str
    model_digest: str
    block_size: int
    publishes_blocks: bool


@dataclass(frozen=True, slots=True)
class CacheFrame:
    """One message; each part may be absent."""

    update: Update | None
    load: LoadReport | None
    info: CacheInfo | None


class CacheEventsClient:
    """Subscriptions to one worker, over a channel of its own so that they never delay a Session."""

    def __init__(self, address: str, trust: ServerConfig | None, *, subscriber: str, load_interval_ms: int) -> None:
        self._channel = open_channel(address, trust)
        self._stub = pb_grpc.CacheEventsStub(self._channel)  # type: ignore[no-untyped-call]
        self._metadata = call_metadata(trust)
        self._request = pb.SubscribeRequest(subscriber=subscriber, load_interval_ms=load_interval_ms)

    async def subscribe(self) -> AsyncIterator[CacheFrame]:
        """Frames until the subscription ends. Raises the HeadraceError it ends with."""
        call = self._stub.Subscribe(self._request, metadata=self._metadata)
        try:
            async for message in call:
                yield frame_of(message)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        finally:
            call.cancel()

    async def close(self) -> None:
        """End whatever runs."""
        await self._channel.close(None)


def frame_of(message: pb.CacheUpdate) -> CacheFrame:
    """The message as plain values; blocks of states other than full attention are left out."""
    update = None
    if message.HasField("snapshot"):
        parts = [_stored(blocks) for blocks in message.snapshot.blocks if _is_full(blocks.state)]
        update = Update(message.epoch, message.seq, (), parts, message.snapshot.index, message.snapshot.last)
    elif message.events:
        update = Update(message.epoch, message.seq, [_event(event) for event in message.events])
    elif message.epoch:
        update = Update(message.epoch, message.seq)
    return CacheFrame(
        update=update,
        load=load(message.load) if message.HasField("load") else None,
        info=_info(message.info) if message.HasField("info") else None,
    )


def _info(info: pb.CacheInfo) -> CacheInfo:
    return CacheInfo(info.boot_id, info.model, info.model_digest, info.block_size, info.publishes_blocks)


def _event(event: pb.CacheEvent) -> Event:
    kind = event.WhichOneof("kind")
    if kind == "stored" and _is_full(event.stored.state):
        return _stored(event.stored)
    if kind == "removed" and _is_full(event.removed.state):
        return Removed(list(event.removed.hashes), event.removed.tier or pb.TIER_DEVICE)
    return Cleared() if kind == "cleared" else Removed((), pb.TIER_DEVICE)


def _stored(blocks: pb.Blocks) -> Stored:
    return Stored(list(blocks.hashes), blocks.tier or pb.TIER_DEVICE)


def _is_full(state: int) -> bool:
    return state in (pb.STATE_KIND_UNSPECIFIED, pb.STATE_KIND_FULL)
