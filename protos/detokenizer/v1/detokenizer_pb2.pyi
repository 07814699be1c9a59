from protos.common.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ToDetok(_message.Message):
    __slots__ = ("hello", "open", "tokens", "close", "open_part", "pieces")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    OPEN_PART_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    open: _containers.RepeatedCompositeFieldContainer[Open]
    tokens: Tokens
    close: _containers.RepeatedCompositeFieldContainer[Close]
    open_part: _containers.RepeatedCompositeFieldContainer[OpenPart]
    pieces: _containers.RepeatedCompositeFieldContainer[PieceQuery]
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., open: _Optional[_Iterable[_Union[Open, _Mapping]]] = ..., tokens: _Optional[_Union[Tokens, _Mapping]] = ..., close: _Optional[_Iterable[_Union[Close, _Mapping]]] = ..., open_part: _Optional[_Iterable[_Union[OpenPart, _Mapping]]] = ..., pieces: _Optional[_Iterable[_Union[PieceQuery, _Mapping]]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "features", "client_id", "instance")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    features: _containers.RepeatedScalarFieldContainer[str]
    client_id: str
    instance: str
    def __init__(self, protocol: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ..., client_id: _Optional[str] = ..., instance: _Optional[str] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("handle", "context_ids", "prior_output_ids", "delivered_bytes", "skip_special_tokens", "keep_special_ids", "spaces_between_special", "stop_strings", "stop_regexes", "keep_stop", "want_pieces", "total_prior_tokens", "model", "tokenizer_digest", "request_id")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_IDS_FIELD_NUMBER: _ClassVar[int]
    PRIOR_OUTPUT_IDS_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SKIP_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KEEP_SPECIAL_IDS_FIELD_NUMBER: _ClassVar[int]
    SPACES_BETWEEN_SPECIAL_FIELD_NUMBER: _ClassVar[int]
    STOP_STRINGS_FIELD_NUMBER: _ClassVar[int]
    STOP_REGEXES_FIELD_NUMBER: _ClassVar[int]
    KEEP_STOP_FIELD_NUMBER: _ClassVar[int]
    WANT_PIECES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_PRIOR_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    handle: int
    context_ids: _containers.RepeatedScalarFieldContainer[int]
    prior_output_ids: _containers.RepeatedScalarFieldContainer[int]
    delivered_bytes: int
    skip_special_tokens: bool
    keep_special_ids: _containers.RepeatedScalarFieldContainer[int]
    spaces_between_special: bool
    stop_strings: _containers.RepeatedScalarFieldContainer[str]
    stop_regexes: _containers.RepeatedScalarFieldContainer[str]
    keep_stop: bool
    want_pieces: bool
    total_prior_tokens: int
    model: str
    tokenizer_digest: str
    request_id: str
    def __init__(self, handle: _Optional[int] = ..., context_ids: _Optional[_Iterable[int]] = ..., prior_output_ids: _Optional[_Iterable[int]] = ..., delivered_bytes: _Optional[int] = ..., skip_special_tokens: _Optional[bool] = ..., keep_special_ids: _Optional[_Iterable[int]] = ..., spaces_between_special: _Optional[bool] = ..., stop_strings: _Optional[_Iterable[str]] = ..., stop_regexes: _Optional[_Iterable[str]] = ..., keep_stop: _Optional[bool] = ..., want_pieces: _Optional[bool] = ..., total_prior_tokens: _Optional[int] = ..., model: _Optional[str] = ..., tokenizer_digest: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class OpenPart(_message.Message):
    __slots__ = ("handle", "offset", "prior_output_ids")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PRIOR_OUTPUT_IDS_FIELD_NUMBER: _ClassVar[int]
    handle: int
    offset: int
    prior_output_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, handle: _Optional[int] = ..., offset: _Optional[int] = ..., prior_output_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Tokens(_message.Message):
    __slots__ = ("handle", "first_position", "count", "token_ids")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    FIRST_POSITION_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    handle: _containers.RepeatedScalarFieldContainer[int]
    first_position: _containers.RepeatedScalarFieldContainer[int]
    count: _containers.RepeatedScalarFieldContainer[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, handle: _Optional[_Iterable[int]] = ..., first_position: _Optional[_Iterable[int]] = ..., count: _Optional[_Iterable[int]] = ..., token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Close(_message.Message):
    __slots__ = ("handle", "flush", "keep_bytes")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    KEEP_BYTES_FIELD_NUMBER: _ClassVar[int]
    handle: int
    flush: bool
    keep_bytes: int
    def __init__(self, handle: _Optional[int] = ..., flush: _Optional[bool] = ..., keep_bytes: _Optional[int] = ...) -> None: ...

class PieceQuery(_message.Message):
    __slots__ = ("handle", "first_position", "ids", "query_id")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    FIRST_POSITION_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    handle: int
    first_position: int
    ids: _containers.RepeatedScalarFieldContainer[int]
    query_id: int
    def __init__(self, handle: _Optional[int] = ..., first_position: _Optional[int] = ..., ids: _Optional[_Iterable[int]] = ..., query_id: _Optional[int] = ...) -> None: ...

class FromDetok(_message.Message):
    __slots__ = ("seq", "text", "closed", "failed", "pieces", "welcome", "notice")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    NOTICE_FIELD_NUMBER: _ClassVar[int]
    seq: int
    text: Text
    closed: _containers.RepeatedCompositeFieldContainer[Closed]
    failed: _containers.RepeatedCompositeFieldContainer[Failed]
    pieces: _containers.RepeatedCompositeFieldContainer[Pieces]
    welcome: Welcome
    notice: Notice
    def __init__(self, seq: _Optional[int] = ..., text: _Optional[_Union[Text, _Mapping]] = ..., closed: _Optional[_Iterable[_Union[Closed, _Mapping]]] = ..., failed: _Optional[_Iterable[_Union[Failed, _Mapping]]] = ..., pieces: _Optional[_Iterable[_Union[Pieces, _Mapping]]] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., notice: _Optional[_Union[Notice, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("protocol", "features", "boot_id", "tokenizer_digest", "max_frame_bytes", "max_states", "model")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    MAX_FRAME_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_STATES_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    features: _containers.RepeatedScalarFieldContainer[str]
    boot_id: str
    tokenizer_digest: str
    max_frame_bytes: int
    max_states: int
    model: str
    def __init__(self, protocol: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ..., boot_id: _Optional[str] = ..., tokenizer_digest: _Optional[str] = ..., max_frame_bytes: _Optional[int] = ..., max_states: _Optional[int] = ..., model: _Optional[str] = ...) -> None: ...

class Text(_message.Message):
    __slots__ = ("handle", "piece", "through_position", "end_byte", "holding", "token_pieces")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    THROUGH_POSITION_FIELD_NUMBER: _ClassVar[int]
    END_BYTE_FIELD_NUMBER: _ClassVar[int]
    HOLDING_FIELD_NUMBER: _ClassVar[int]
    TOKEN_PIECES_FIELD_NUMBER: _ClassVar[int]
    handle: _containers.RepeatedScalarFieldContainer[int]
    piece: _containers.RepeatedScalarFieldContainer[str]
    through_position: _containers.RepeatedScalarFieldContainer[int]
    end_byte: _containers.RepeatedScalarFieldContainer[int]
    holding: _containers.RepeatedScalarFieldContainer[bool]
    token_pieces: _containers.RepeatedCompositeFieldContainer[TokenPieces]
    def __init__(self, handle: _Optional[_Iterable[int]] = ..., piece: _Optional[_Iterable[str]] = ..., through_position: _Optional[_Iterable[int]] = ..., end_byte: _Optional[_Iterable[int]] = ..., holding: _Optional[_Iterable[bool]] = ..., token_pieces: _Optional[_Iterable[_Union[TokenPieces, _Mapping]]] = ...) -> None: ...

class TokenPieces(_message.Message):
    __slots__ = ("row", "first_position", "pieces")
    ROW_FIELD_NUMBER: _ClassVar[int]
    FIRST_POSITION_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    row: int
    first_position: int
    pieces: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, row: _Optional[int] = ..., first_position: _Optional[int] = ..., pieces: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Closed(_message.Message):
    __slots__ = ("handle", "tail", "total_bytes", "through_position")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    THROUGH_POSITION_FIELD_NUMBER: _ClassVar[int]
    handle: int
    tail: str
    total_bytes: int
    through_position: int
    def __init__(self, handle: _Optional[int] = ..., tail: _Optional[str] = ..., total_bytes: _Optional[int] = ..., through_position: _Optional[int] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("handle", "error")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    handle: int
    error: _common_pb2.Error
    def __init__(self, handle: _Optional[int] = ..., error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ...) -> None: ...

class Pieces(_message.Message):
    __slots__ = ("handle", "query_id", "pieces")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    handle: int
    query_id: int
    pieces: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, handle: _Optional[int] = ..., query_id: _Optional[int] = ..., pieces: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Notice(_message.Message):
    __slots__ = ("draining", "heartbeat")
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    draining: Draining
    heartbeat: Heartbeat
    def __init__(self, draining: _Optional[_Union[Draining, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ...) -> None: ...

class Draining(_message.Message):
    __slots__ = ("remaining_ms",)
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    remaining_ms: int
    def __init__(self, remaining_ms: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DetokenizeRequest(_message.Message):
    __slots__ = ("model", "sequences", "skip_special_tokens", "spaces_between_special")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    SKIP_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SPACES_BETWEEN_SPECIAL_FIELD_NUMBER: _ClassVar[int]
    model: str
    sequences: _containers.RepeatedCompositeFieldContainer[TokenIds]
    skip_special_tokens: bool
    spaces_between_special: bool
    def __init__(self, model: _Optional[str] = ..., sequences: _Optional[_Iterable[_Union[TokenIds, _Mapping]]] = ..., skip_special_tokens: _Optional[bool] = ..., spaces_between_special: _Optional[bool] = ...) -> None: ...

class TokenIds(_message.Message):
    __slots__ = ("token_ids",)
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class DetokenizeResponse(_message.Message):
    __slots__ = ("texts",)
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    texts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, texts: _Optional[_Iterable[str]] = ...) -> None: ...

class GetDetokenizerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetDetokenizerInfoResponse(_message.Message):
    __slots__ = ("model", "tokenizer_digest", "open_states", "max_states", "server_version")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    OPEN_STATES_FIELD_NUMBER: _ClassVar[int]
    MAX_STATES_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    model: str
    tokenizer_digest: str
    open_states: int
    max_states: int
    server_version: str
    def __init__(self, model: _Optional[str] = ..., tokenizer_digest: _Optional[str] = ..., open_states: _Optional[int] = ..., max_states: _Optional[int] = ..., server_version: _Optional[str] = ...) -> None: ...
