from protos.scheduler.v1 import scheduler_pb2 as _scheduler_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Tier(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TIER_UNSPECIFIED: _ClassVar[Tier]
    TIER_DEVICE: _ClassVar[Tier]
    TIER_HOST: _ClassVar[Tier]
    TIER_STORAGE: _ClassVar[Tier]

class StateKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATE_KIND_UNSPECIFIED: _ClassVar[StateKind]
    STATE_KIND_FULL: _ClassVar[StateKind]
    STATE_KIND_WINDOW: _ClassVar[StateKind]
    STATE_KIND_RECURRENT: _ClassVar[StateKind]
TIER_UNSPECIFIED: Tier
TIER_DEVICE: Tier
TIER_HOST: Tier
TIER_STORAGE: Tier
STATE_KIND_UNSPECIFIED: StateKind
STATE_KIND_FULL: StateKind
STATE_KIND_WINDOW: StateKind
STATE_KIND_RECURRENT: StateKind

class SubscribeRequest(_message.Message):
    __slots__ = ("subscriber", "load_interval_ms")
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    LOAD_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    subscriber: str
    load_interval_ms: int
    def __init__(self, subscriber: _Optional[str] = ..., load_interval_ms: _Optional[int] = ...) -> None: ...

class CacheUpdate(_message.Message):
    __slots__ = ("epoch", "seq", "snapshot", "events", "load", "info")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    seq: int
    snapshot: SnapshotPart
    events: _containers.RepeatedCompositeFieldContainer[CacheEvent]
    load: _scheduler_pb2.Load
    info: CacheInfo
    def __init__(self, epoch: _Optional[int] = ..., seq: _Optional[int] = ..., snapshot: _Optional[_Union[SnapshotPart, _Mapping]] = ..., events: _Optional[_Iterable[_Union[CacheEvent, _Mapping]]] = ..., load: _Optional[_Union[_scheduler_pb2.Load, _Mapping]] = ..., info: _Optional[_Union[CacheInfo, _Mapping]] = ...) -> None: ...

class CacheInfo(_message.Message):
    __slots__ = ("boot_id", "model", "model_digest", "block_size", "publishes_blocks")
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    PUBLISHES_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    boot_id: str
    model: str
    model_digest: str
    block_size: int
    publishes_blocks: bool
    def __init__(self, boot_id: _Optional[str] = ..., model: _Optional[str] = ..., model_digest: _Optional[str] = ..., block_size: _Optional[int] = ..., publishes_blocks: _Optional[bool] = ...) -> None: ...

class SnapshotPart(_message.Message):
    __slots__ = ("blocks", "last", "index")
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    blocks: _containers.RepeatedCompositeFieldContainer[Blocks]
    last: bool
    index: int
    def __init__(self, blocks: _Optional[_Iterable[_Union[Blocks, _Mapping]]] = ..., last: _Optional[bool] = ..., index: _Optional[int] = ...) -> None: ...

class Blocks(_message.Message):
    __slots__ = ("parent", "hashes", "tier", "state")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    HASHES_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    parent: int
    hashes: _containers.RepeatedScalarFieldContainer[int]
    tier: Tier
    state: StateKind
    def __init__(self, parent: _Optional[int] = ..., hashes: _Optional[_Iterable[int]] = ..., tier: _Optional[_Union[Tier, str]] = ..., state: _Optional[_Union[StateKind, str]] = ...) -> None: ...

class CacheEvent(_message.Message):
    __slots__ = ("stored", "removed", "cleared")
    STORED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    CLEARED_FIELD_NUMBER: _ClassVar[int]
    stored: Blocks
    removed: Removed
    cleared: Cleared
    def __init__(self, stored: _Optional[_Union[Blocks, _Mapping]] = ..., removed: _Optional[_Union[Removed, _Mapping]] = ..., cleared: _Optional[_Union[Cleared, _Mapping]] = ...) -> None: ...

class Removed(_message.Message):
    __slots__ = ("hashes", "tier", "state")
    HASHES_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    hashes: _containers.RepeatedScalarFieldContainer[int]
    tier: Tier
    state: StateKind
    def __init__(self, hashes: _Optional[_Iterable[int]] = ..., tier: _Optional[_Union[Tier, str]] = ..., state: _Optional[_Union[StateKind, str]] = ...) -> None: ...

class Cleared(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
