"""Cache events and snapshots as the contract spells them, in frames of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from protos.scheduler.v1 import cache_events_pb2 as pb
from services.common.grpc_options import MAX_FRAME_BYTES
from services.scheduler.cache.events import CacheEvent, CacheEvents, CacheSnapshot, Removed, Stored

_BUDGET = MAX_FRAME_BYTES * 3 // 4
_HASH_BYTES = 9
_BLOCKS_BYTES = 32

E = TypeVar("E", bound=CacheEvent)


def snapshot_updates(snapshot: CacheSnapshot) -> Iterator[pb.CacheUpdate]:
    """All blocks; `seq` of every part is that of the first event that follows. At least one part, the last says so."""
    parts = list(_batches(list(snapshot.blocks))) or [[]]
    for index, blocks in enumerate(parts):
        yield pb.CacheUpdate(
            epoch=snapshot.epoch,
            seq=snapshot.next_seq,
            snapshot=pb.SnapshotPart(blocks=[_blocks(stored) for stored in blocks], last=index == len(parts) - 1, index=index),
        )


def event_updates(events: CacheEvents) -> Iterator[pb.CacheUpdate]:
    """Events in order; `seq` is that of a message's first event."""
    seq = events.first_seq
    for batch in _batches(events.events):
        yield pb.CacheUpdate(epoch=events.epoch, seq=seq, events=[_event(event) for event in batch])
        seq += len(batch)


def _batches(events: Sequence[E]) -> Iterator[list[E]]:
    batch: list[E] = []
    used = 0
    for event in events:
        size = _BLOCKS_BYTES + _HASH_BYTES * (len(event.hashes) if isinstance(event, Stored | Removed) else 0)
        if batch and used + size > _BUDGET:
            yield batch
            batch, used = [], 0
        batch.append(event)
        used += size
    if batch:
        yield batch


def _blocks(stored: Stored) -> pb.Blocks:
    return pb.Blocks(parent=stored.parent, hashes=stored.hashes, tier=pb.TIER_DEVICE, state=pb.STATE_KIND_FULL)


def _event(event: CacheEvent) -> pb.CacheEvent:
    if isinstance(event, Stored):
        return pb.CacheEvent(stored=_blocks(event))
    if isinstance(event, Removed):
        return pb.CacheEvent(removed=pb.Removed(hashes=event.hashes, tier=pb.TIER_DEVICE, state=pb.STATE_KIND_FULL))
    return pb.CacheEvent(cleared=pb.Cleared())
