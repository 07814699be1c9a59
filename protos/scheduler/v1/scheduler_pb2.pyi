from protos.common.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LogprobScale(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOGPROB_SCALE_UNSPECIFIED: _ClassVar[LogprobScale]
    LOGPROB_SCALE_RAW: _ClassVar[LogprobScale]
    LOGPROB_SCALE_TEMPERED: _ClassVar[LogprobScale]

class CancelCause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CANCEL_CAUSE_UNSPECIFIED: _ClassVar[CancelCause]
    CANCEL_CAUSE_CLIENT_DISCONNECT: _ClassVar[CancelCause]
    CANCEL_CAUSE_ABORT_REQUEST: _ClassVar[CancelCause]
    CANCEL_CAUSE_DEADLINE: _ClassVar[CancelCause]
    CANCEL_CAUSE_SLOW_CONSUMER: _ClassVar[CancelCause]
    CANCEL_CAUSE_SUPERSEDED: _ClassVar[CancelCause]
    CANCEL_CAUSE_SHUTDOWN: _ClassVar[CancelCause]
    CANCEL_CAUSE_SATISFIED: _ClassVar[CancelCause]

class CacheLimit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CACHE_LIMIT_UNSPECIFIED: _ClassVar[CacheLimit]
    CACHE_LIMIT_PROMPT_LOGPROBS: _ClassVar[CacheLimit]
    CACHE_LIMIT_DISABLED: _ClassVar[CacheLimit]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
    FINISH_REASON_ABORT: _ClassVar[FinishReason]
    FINISH_REASON_GRAMMAR_END: _ClassVar[FinishReason]
    FINISH_REASON_ERROR: _ClassVar[FinishReason]
    FINISH_REASON_INTERRUPTED: _ClassVar[FinishReason]
LOGPROB_SCALE_UNSPECIFIED: LogprobScale
LOGPROB_SCALE_RAW: LogprobScale
LOGPROB_SCALE_TEMPERED: LogprobScale
CANCEL_CAUSE_UNSPECIFIED: CancelCause
CANCEL_CAUSE_CLIENT_DISCONNECT: CancelCause
CANCEL_CAUSE_ABORT_REQUEST: CancelCause
CANCEL_CAUSE_DEADLINE: CancelCause
CANCEL_CAUSE_SLOW_CONSUMER: CancelCause
CANCEL_CAUSE_SUPERSEDED: CancelCause
CANCEL_CAUSE_SHUTDOWN: CancelCause
CANCEL_CAUSE_SATISFIED: CancelCause
CACHE_LIMIT_UNSPECIFIED: CacheLimit
CACHE_LIMIT_PROMPT_LOGPROBS: CacheLimit
CACHE_LIMIT_DISABLED: CacheLimit
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_LENGTH: FinishReason
FINISH_REASON_ABORT: FinishReason
FINISH_REASON_GRAMMAR_END: FinishReason
FINISH_REASON_ERROR: FinishReason
FINISH_REASON_INTERRUPTED: FinishReason

class ToWorker(_message.Message):
    __slots__ = ("hello", "submit", "prompt", "cancel", "update")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    submit: _containers.RepeatedCompositeFieldContainer[Submit]
    prompt: _containers.RepeatedCompositeFieldContainer[PromptPart]
    cancel: _containers.RepeatedCompositeFieldContainer[Cancel]
    update: _containers.RepeatedCompositeFieldContainer[Update]
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., submit: _Optional[_Iterable[_Union[Submit, _Mapping]]] = ..., prompt: _Optional[_Iterable[_Union[PromptPart, _Mapping]]] = ..., cancel: _Optional[_Iterable[_Union[Cancel, _Mapping]]] = ..., update: _Optional[_Iterable[_Union[Update, _Mapping]]] = ...) -> None: ...

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

class Submit(_message.Message):
    __slots__ = ("handle_base", "request_id", "attempt", "prompt", "choices", "sampling", "stops", "output", "deadline_ms", "priority", "waited_ms", "constraint", "model", "adapter", "tenant", "traceparent", "transfer", "dp_rank", "speculation", "require_weight_version", "expected_cached_tokens", "session")
    HANDLE_BASE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    STOPS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    WAITED_MS_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    DP_RANK_FIELD_NUMBER: _ClassVar[int]
    SPECULATION_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    handle_base: int
    request_id: str
    attempt: int
    prompt: Prompt
    choices: _containers.RepeatedCompositeFieldContainer[Choice]
    sampling: Sampling
    stops: Stops
    output: Output
    deadline_ms: int
    priority: int
    waited_ms: int
    constraint: Constraint
    model: str
    adapter: _common_pb2.Adapter
    tenant: str
    traceparent: str
    transfer: KvTransfer
    dp_rank: int
    speculation: Speculation
    require_weight_version: str
    expected_cached_tokens: int
    session: str
    def __init__(self, handle_base: _Optional[int] = ..., request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., prompt: _Optional[_Union[Prompt, _Mapping]] = ..., choices: _Optional[_Iterable[_Union[Choice, _Mapping]]] = ..., sampling: _Optional[_Union[Sampling, _Mapping]] = ..., stops: _Optional[_Union[Stops, _Mapping]] = ..., output: _Optional[_Union[Output, _Mapping]] = ..., deadline_ms: _Optional[int] = ..., priority: _Optional[int] = ..., waited_ms: _Optional[int] = ..., constraint: _Optional[_Union[Constraint, _Mapping]] = ..., model: _Optional[str] = ..., adapter: _Optional[_Union[_common_pb2.Adapter, _Mapping]] = ..., tenant: _Optional[str] = ..., traceparent: _Optional[str] = ..., transfer: _Optional[_Union[KvTransfer, _Mapping]] = ..., dp_rank: _Optional[int] = ..., speculation: _Optional[_Union[Speculation, _Mapping]] = ..., require_weight_version: _Optional[str] = ..., expected_cached_tokens: _Optional[int] = ..., session: _Optional[str] = ...) -> None: ...

class Prompt(_message.Message):
    __slots__ = ("token_ids", "total_tokens", "cache_salt", "extra_key", "media")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    EXTRA_KEY_FIELD_NUMBER: _ClassVar[int]
    MEDIA_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    total_tokens: int
    cache_salt: bytes
    extra_key: str
    media: _containers.RepeatedCompositeFieldContainer[MediaItem]
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ..., total_tokens: _Optional[int] = ..., cache_salt: _Optional[bytes] = ..., extra_key: _Optional[str] = ..., media: _Optional[_Iterable[_Union[MediaItem, _Mapping]]] = ...) -> None: ...

class MediaItem(_message.Message):
    __slots__ = ("kind", "data")
    KIND_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    kind: str
    data: bytes
    def __init__(self, kind: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class PromptPart(_message.Message):
    __slots__ = ("handle_base", "offset", "token_ids")
    HANDLE_BASE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    handle_base: int
    offset: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, handle_base: _Optional[int] = ..., offset: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Choice(_message.Message):
    __slots__ = ("index", "seed", "prior_output_ids", "prior_retractions")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    PRIOR_OUTPUT_IDS_FIELD_NUMBER: _ClassVar[int]
    PRIOR_RETRACTIONS_FIELD_NUMBER: _ClassVar[int]
    index: int
    seed: int
    prior_output_ids: _containers.RepeatedScalarFieldContainer[int]
    prior_retractions: int
    def __init__(self, index: _Optional[int] = ..., seed: _Optional[int] = ..., prior_output_ids: _Optional[_Iterable[int]] = ..., prior_retractions: _Optional[int] = ...) -> None: ...

class Sampling(_message.Message):
    __slots__ = ("temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias", "custom_logit_processor", "custom_params")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    LOGIT_BIAS_FIELD_NUMBER: _ClassVar[int]
    CUSTOM_LOGIT_PROCESSOR_FIELD_NUMBER: _ClassVar[int]
    CUSTOM_PARAMS_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    frequency_penalty: float
    presence_penalty: float
    repetition_penalty: float
    logit_bias: _containers.RepeatedCompositeFieldContainer[LogitBias]
    custom_logit_processor: str
    custom_params: str
    def __init__(self, temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., top_k: _Optional[int] = ..., min_p: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., logit_bias: _Optional[_Iterable[_Union[LogitBias, _Mapping]]] = ..., custom_logit_processor: _Optional[str] = ..., custom_params: _Optional[str] = ...) -> None: ...

class LogitBias(_message.Message):
    __slots__ = ("token_id", "bias")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    BIAS_FIELD_NUMBER: _ClassVar[int]
    token_id: int
    bias: float
    def __init__(self, token_id: _Optional[int] = ..., bias: _Optional[float] = ...) -> None: ...

class Stops(_message.Message):
    __slots__ = ("max_new_tokens", "min_new_tokens", "token_ids", "strings", "regexes", "ignore_eos", "skip_special_tokens", "keep_special_ids", "spaces_between_special")
    MAX_NEW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MIN_NEW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    STRINGS_FIELD_NUMBER: _ClassVar[int]
    REGEXES_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    SKIP_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KEEP_SPECIAL_IDS_FIELD_NUMBER: _ClassVar[int]
    SPACES_BETWEEN_SPECIAL_FIELD_NUMBER: _ClassVar[int]
    max_new_tokens: int
    min_new_tokens: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    strings: _containers.RepeatedScalarFieldContainer[str]
    regexes: _containers.RepeatedScalarFieldContainer[str]
    ignore_eos: bool
    skip_special_tokens: bool
    keep_special_ids: _containers.RepeatedScalarFieldContainer[int]
    spaces_between_special: bool
    def __init__(self, max_new_tokens: _Optional[int] = ..., min_new_tokens: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., strings: _Optional[_Iterable[str]] = ..., regexes: _Optional[_Iterable[str]] = ..., ignore_eos: _Optional[bool] = ..., skip_special_tokens: _Optional[bool] = ..., keep_special_ids: _Optional[_Iterable[int]] = ..., spaces_between_special: _Optional[bool] = ...) -> None: ...

class Constraint(_message.Message):
    __slots__ = ("json_schema", "regex", "ebnf", "structural_tag", "lenient_json_schema", "lenient_structural_tag", "begin_after_ids", "opening_ids")
    JSON_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    EBNF_FIELD_NUMBER: _ClassVar[int]
    STRUCTURAL_TAG_FIELD_NUMBER: _ClassVar[int]
    LENIENT_JSON_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    LENIENT_STRUCTURAL_TAG_FIELD_NUMBER: _ClassVar[int]
    BEGIN_AFTER_IDS_FIELD_NUMBER: _ClassVar[int]
    OPENING_IDS_FIELD_NUMBER: _ClassVar[int]
    json_schema: str
    regex: str
    ebnf: str
    structural_tag: str
    lenient_json_schema: str
    lenient_structural_tag: str
    begin_after_ids: _containers.RepeatedScalarFieldContainer[int]
    opening_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, json_schema: _Optional[str] = ..., regex: _Optional[str] = ..., ebnf: _Optional[str] = ..., structural_tag: _Optional[str] = ..., lenient_json_schema: _Optional[str] = ..., lenient_structural_tag: _Optional[str] = ..., begin_after_ids: _Optional[_Iterable[int]] = ..., opening_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Output(_message.Message):
    __slots__ = ("top_logprobs", "logprob_ids", "prompt_logprobs_from", "scale", "stream_interval")
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_IDS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FROM_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    STREAM_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    top_logprobs: int
    logprob_ids: _containers.RepeatedScalarFieldContainer[int]
    prompt_logprobs_from: int
    scale: LogprobScale
    stream_interval: int
    def __init__(self, top_logprobs: _Optional[int] = ..., logprob_ids: _Optional[_Iterable[int]] = ..., prompt_logprobs_from: _Optional[int] = ..., scale: _Optional[_Union[LogprobScale, str]] = ..., stream_interval: _Optional[int] = ...) -> None: ...

class KvTransfer(_message.Message):
    __slots__ = ("role", "room", "peer", "backend", "params")
    class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ROLE_UNSPECIFIED: _ClassVar[KvTransfer.Role]
        ROLE_PREFILL: _ClassVar[KvTransfer.Role]
        ROLE_DECODE: _ClassVar[KvTransfer.Role]
    ROLE_UNSPECIFIED: KvTransfer.Role
    ROLE_PREFILL: KvTransfer.Role
    ROLE_DECODE: KvTransfer.Role
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ROOM_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    role: KvTransfer.Role
    room: int
    peer: str
    backend: str
    params: bytes
    def __init__(self, role: _Optional[_Union[KvTransfer.Role, str]] = ..., room: _Optional[int] = ..., peer: _Optional[str] = ..., backend: _Optional[str] = ..., params: _Optional[bytes] = ...) -> None: ...

class Speculation(_message.Message):
    __slots__ = ("disabled", "num_draft_tokens")
    DISABLED_FIELD_NUMBER: _ClassVar[int]
    NUM_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    disabled: bool
    num_draft_tokens: int
    def __init__(self, disabled: _Optional[bool] = ..., num_draft_tokens: _Optional[int] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("handle", "cause", "by")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    handle: int
    cause: CancelCause
    by: str
    def __init__(self, handle: _Optional[int] = ..., cause: _Optional[_Union[CancelCause, str]] = ..., by: _Optional[str] = ...) -> None: ...

class Update(_message.Message):
    __slots__ = ("handle", "priority", "deadline_ms")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    handle: int
    priority: int
    deadline_ms: int
    def __init__(self, handle: _Optional[int] = ..., priority: _Optional[int] = ..., deadline_ms: _Optional[int] = ...) -> None: ...

class FromWorker(_message.Message):
    __slots__ = ("seq", "step", "accepted", "started", "final", "prompt_logprobs", "load", "welcome", "notice")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    NOTICE_FIELD_NUMBER: _ClassVar[int]
    seq: int
    step: Step
    accepted: _containers.RepeatedCompositeFieldContainer[Accepted]
    started: _containers.RepeatedCompositeFieldContainer[Started]
    final: _containers.RepeatedCompositeFieldContainer[Final]
    prompt_logprobs: _containers.RepeatedCompositeFieldContainer[PromptLogprobs]
    load: Load
    welcome: Welcome
    notice: Notice
    def __init__(self, seq: _Optional[int] = ..., step: _Optional[_Union[Step, _Mapping]] = ..., accepted: _Optional[_Iterable[_Union[Accepted, _Mapping]]] = ..., started: _Optional[_Iterable[_Union[Started, _Mapping]]] = ..., final: _Optional[_Iterable[_Union[Final, _Mapping]]] = ..., prompt_logprobs: _Optional[_Iterable[_Union[PromptLogprobs, _Mapping]]] = ..., load: _Optional[_Union[Load, _Mapping]] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., notice: _Optional[_Union[Notice, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("protocol", "features", "boot_id", "model_digest", "tokenizer_digest", "weight_version", "quantization", "batch_invariant", "block_size", "max_frame_bytes", "context_tokens", "model", "vocab_size", "pool_tokens")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    QUANTIZATION_FIELD_NUMBER: _ClassVar[int]
    BATCH_INVARIANT_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_FRAME_BYTES_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    POOL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    features: _containers.RepeatedScalarFieldContainer[str]
    boot_id: str
    model_digest: str
    tokenizer_digest: str
    weight_version: str
    quantization: str
    batch_invariant: bool
    block_size: int
    max_frame_bytes: int
    context_tokens: int
    model: str
    vocab_size: int
    pool_tokens: int
    def __init__(self, protocol: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ..., boot_id: _Optional[str] = ..., model_digest: _Optional[str] = ..., tokenizer_digest: _Optional[str] = ..., weight_version: _Optional[str] = ..., quantization: _Optional[str] = ..., batch_invariant: _Optional[bool] = ..., block_size: _Optional[int] = ..., max_frame_bytes: _Optional[int] = ..., context_tokens: _Optional[int] = ..., model: _Optional[str] = ..., vocab_size: _Optional[int] = ..., pool_tokens: _Optional[int] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("step_id", "engine_time_ns", "handle", "first_position", "count", "token_ids", "logprobs", "accepted_drafts", "extra")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    ENGINE_TIME_NS_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    FIRST_POSITION_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_DRAFTS_FIELD_NUMBER: _ClassVar[int]
    EXTRA_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    engine_time_ns: int
    handle: _containers.RepeatedScalarFieldContainer[int]
    first_position: _containers.RepeatedScalarFieldContainer[int]
    count: _containers.RepeatedScalarFieldContainer[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: Logprobs
    accepted_drafts: _containers.RepeatedScalarFieldContainer[int]
    extra: _containers.RepeatedCompositeFieldContainer[RowExtra]
    def __init__(self, step_id: _Optional[int] = ..., engine_time_ns: _Optional[int] = ..., handle: _Optional[_Iterable[int]] = ..., first_position: _Optional[_Iterable[int]] = ..., count: _Optional[_Iterable[int]] = ..., token_ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Union[Logprobs, _Mapping]] = ..., accepted_drafts: _Optional[_Iterable[int]] = ..., extra: _Optional[_Iterable[_Union[RowExtra, _Mapping]]] = ...) -> None: ...

class Logprobs(_message.Message):
    __slots__ = ("row", "chosen", "top_count", "top_ids", "top", "scale", "id_count", "ids")
    ROW_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_FIELD_NUMBER: _ClassVar[int]
    TOP_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOP_IDS_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    ID_COUNT_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    row: _containers.RepeatedScalarFieldContainer[int]
    chosen: _containers.RepeatedScalarFieldContainer[float]
    top_count: _containers.RepeatedScalarFieldContainer[int]
    top_ids: _containers.RepeatedScalarFieldContainer[int]
    top: _containers.RepeatedScalarFieldContainer[float]
    scale: LogprobScale
    id_count: _containers.RepeatedScalarFieldContainer[int]
    ids: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, row: _Optional[_Iterable[int]] = ..., chosen: _Optional[_Iterable[float]] = ..., top_count: _Optional[_Iterable[int]] = ..., top_ids: _Optional[_Iterable[int]] = ..., top: _Optional[_Iterable[float]] = ..., scale: _Optional[_Union[LogprobScale, str]] = ..., id_count: _Optional[_Iterable[int]] = ..., ids: _Optional[_Iterable[float]] = ...) -> None: ...

class RowExtra(_message.Message):
    __slots__ = ("row", "values")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    ROW_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    row: int
    values: _containers.ScalarMap[str, bytes]
    def __init__(self, row: _Optional[int] = ..., values: _Optional[_Mapping[str, bytes]] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ("handle", "queue_position", "expected_wait_ms")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_POSITION_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    handle: int
    queue_position: int
    expected_wait_ms: int
    def __init__(self, handle: _Optional[int] = ..., queue_position: _Optional[int] = ..., expected_wait_ms: _Optional[int] = ...) -> None: ...

class Started(_message.Message):
    __slots__ = ("handle", "prompt_tokens", "cached", "queue_ns", "cache_limit_reason")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_FIELD_NUMBER: _ClassVar[int]
    QUEUE_NS_FIELD_NUMBER: _ClassVar[int]
    CACHE_LIMIT_REASON_FIELD_NUMBER: _ClassVar[int]
    handle: int
    prompt_tokens: int
    cached: TierTokens
    queue_ns: int
    cache_limit_reason: CacheLimit
    def __init__(self, handle: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., cached: _Optional[_Union[TierTokens, _Mapping]] = ..., queue_ns: _Optional[int] = ..., cache_limit_reason: _Optional[_Union[CacheLimit, str]] = ...) -> None: ...

class TierTokens(_message.Message):
    __slots__ = ("device", "host", "storage")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    STORAGE_FIELD_NUMBER: _ClassVar[int]
    device: int
    host: int
    storage: int
    def __init__(self, device: _Optional[int] = ..., host: _Optional[int] = ..., storage: _Optional[int] = ...) -> None: ...

class Final(_message.Message):
    __slots__ = ("handle", "reason", "token_id", "stop_index", "regex_index", "keep_bytes", "end_position", "usage", "timings", "retractions", "error", "weight_versions")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    STOP_INDEX_FIELD_NUMBER: _ClassVar[int]
    REGEX_INDEX_FIELD_NUMBER: _ClassVar[int]
    KEEP_BYTES_FIELD_NUMBER: _ClassVar[int]
    END_POSITION_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    RETRACTIONS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    handle: int
    reason: FinishReason
    token_id: int
    stop_index: int
    regex_index: int
    keep_bytes: int
    end_position: int
    usage: Usage
    timings: _common_pb2.Timings
    retractions: int
    error: _common_pb2.Error
    weight_versions: _containers.RepeatedCompositeFieldContainer[VersionSpan]
    def __init__(self, handle: _Optional[int] = ..., reason: _Optional[_Union[FinishReason, str]] = ..., token_id: _Optional[int] = ..., stop_index: _Optional[int] = ..., regex_index: _Optional[int] = ..., keep_bytes: _Optional[int] = ..., end_position: _Optional[int] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., timings: _Optional[_Union[_common_pb2.Timings, _Mapping]] = ..., retractions: _Optional[int] = ..., error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ..., weight_versions: _Optional[_Iterable[_Union[VersionSpan, _Mapping]]] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("prompt_tokens", "completion_tokens", "cached")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    completion_tokens: int
    cached: TierTokens
    def __init__(self, prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., cached: _Optional[_Union[TierTokens, _Mapping]] = ...) -> None: ...

class VersionSpan(_message.Message):
    __slots__ = ("weight_version", "first_position")
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    FIRST_POSITION_FIELD_NUMBER: _ClassVar[int]
    weight_version: str
    first_position: int
    def __init__(self, weight_version: _Optional[str] = ..., first_position: _Optional[int] = ...) -> None: ...

class PromptLogprobs(_message.Message):
    __slots__ = ("handle", "first_position", "token_ids", "logprobs", "last")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    FIRST_POSITION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    handle: int
    first_position: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: Logprobs
    last: bool
    def __init__(self, handle: _Optional[int] = ..., first_position: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Union[Logprobs, _Mapping]] = ..., last: _Optional[bool] = ...) -> None: ...

class Load(_message.Message):
    __slots__ = ("running", "waiting", "waiting_prefill_tokens", "grammar_waiting", "retracted", "kv_used_tokens", "kv_total_tokens", "kv_evictable_tokens", "prefill_tokens_per_s", "decode_step_ms", "last_turn_age_ms", "limits", "new_token_ratio", "generation_tokens_per_s", "kv_protected_tokens")
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    WAITING_PREFILL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GRAMMAR_WAITING_FIELD_NUMBER: _ClassVar[int]
    RETRACTED_FIELD_NUMBER: _ClassVar[int]
    KV_USED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KV_TOTAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KV_EVICTABLE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    DECODE_STEP_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_TURN_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    NEW_TOKEN_RATIO_FIELD_NUMBER: _ClassVar[int]
    GENERATION_TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    KV_PROTECTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    running: int
    waiting: int
    waiting_prefill_tokens: int
    grammar_waiting: int
    retracted: int
    kv_used_tokens: int
    kv_total_tokens: int
    kv_evictable_tokens: int
    prefill_tokens_per_s: float
    decode_step_ms: float
    last_turn_age_ms: int
    limits: Limits
    new_token_ratio: float
    generation_tokens_per_s: float
    kv_protected_tokens: int
    def __init__(self, running: _Optional[int] = ..., waiting: _Optional[int] = ..., waiting_prefill_tokens: _Optional[int] = ..., grammar_waiting: _Optional[int] = ..., retracted: _Optional[int] = ..., kv_used_tokens: _Optional[int] = ..., kv_total_tokens: _Optional[int] = ..., kv_evictable_tokens: _Optional[int] = ..., prefill_tokens_per_s: _Optional[float] = ..., decode_step_ms: _Optional[float] = ..., last_turn_age_ms: _Optional[int] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., new_token_ratio: _Optional[float] = ..., generation_tokens_per_s: _Optional[float] = ..., kv_protected_tokens: _Optional[int] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("max_running_requests", "max_queued_requests", "max_prefill_tokens", "chunked_prefill_size", "context_tokens", "pool_tokens")
    MAX_RUNNING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    MAX_PREFILL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CHUNKED_PREFILL_SIZE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    POOL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    max_running_requests: int
    max_queued_requests: int
    max_prefill_tokens: int
    chunked_prefill_size: int
    context_tokens: int
    pool_tokens: int
    def __init__(self, max_running_requests: _Optional[int] = ..., max_queued_requests: _Optional[int] = ..., max_prefill_tokens: _Optional[int] = ..., chunked_prefill_size: _Optional[int] = ..., context_tokens: _Optional[int] = ..., pool_tokens: _Optional[int] = ...) -> None: ...

class Notice(_message.Message):
    __slots__ = ("draining", "weights_changed", "heartbeat", "request_states")
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_CHANGED_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_STATES_FIELD_NUMBER: _ClassVar[int]
    draining: Draining
    weights_changed: WeightsChanged
    heartbeat: Heartbeat
    request_states: RequestStates
    def __init__(self, draining: _Optional[_Union[Draining, _Mapping]] = ..., weights_changed: _Optional[_Union[WeightsChanged, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., request_states: _Optional[_Union[RequestStates, _Mapping]] = ...) -> None: ...

class Draining(_message.Message):
    __slots__ = ("remaining_ms",)
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    remaining_ms: int
    def __init__(self, remaining_ms: _Optional[int] = ...) -> None: ...

class WeightsChanged(_message.Message):
    __slots__ = ("weight_version",)
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    weight_version: str
    def __init__(self, weight_version: _Optional[str] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("last_turn_age_ms",)
    LAST_TURN_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    last_turn_age_ms: int
    def __init__(self, last_turn_age_ms: _Optional[int] = ...) -> None: ...

class RequestStates(_message.Message):
    __slots__ = ("running", "waiting")
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    running: _containers.RepeatedScalarFieldContainer[int]
    waiting: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, running: _Optional[_Iterable[int]] = ..., waiting: _Optional[_Iterable[int]] = ...) -> None: ...

class GenerateRequest(_message.Message):
    __slots__ = ("submit",)
    SUBMIT_FIELD_NUMBER: _ClassVar[int]
    submit: Submit
    def __init__(self, submit: _Optional[_Union[Submit, _Mapping]] = ...) -> None: ...

class GenerateResponse(_message.Message):
    __slots__ = ("frame",)
    FRAME_FIELD_NUMBER: _ClassVar[int]
    frame: FromWorker
    def __init__(self, frame: _Optional[_Union[FromWorker, _Mapping]] = ...) -> None: ...

class AbortRequest(_message.Message):
    __slots__ = ("request_id", "all")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    all: bool
    def __init__(self, request_id: _Optional[str] = ..., all: _Optional[bool] = ...) -> None: ...

class AbortResponse(_message.Message):
    __slots__ = ("aborted",)
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    aborted: int
    def __init__(self, aborted: _Optional[int] = ...) -> None: ...

class GetModelInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetModelInfoResponse(_message.Message):
    __slots__ = ("model", "model_digest", "tokenizer_digest", "architecture", "vocab_size", "context_tokens", "eos_token_ids", "dtype", "quantization", "weight_version", "batch_invariant", "block_size", "model_path")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    QUANTIZATION_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    BATCH_INVARIANT_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    MODEL_PATH_FIELD_NUMBER: _ClassVar[int]
    model: str
    model_digest: str
    tokenizer_digest: str
    architecture: str
    vocab_size: int
    context_tokens: int
    eos_token_ids: _containers.RepeatedScalarFieldContainer[int]
    dtype: str
    quantization: str
    weight_version: str
    batch_invariant: bool
    block_size: int
    model_path: str
    def __init__(self, model: _Optional[str] = ..., model_digest: _Optional[str] = ..., tokenizer_digest: _Optional[str] = ..., architecture: _Optional[str] = ..., vocab_size: _Optional[int] = ..., context_tokens: _Optional[int] = ..., eos_token_ids: _Optional[_Iterable[int]] = ..., dtype: _Optional[str] = ..., quantization: _Optional[str] = ..., weight_version: _Optional[str] = ..., batch_invariant: _Optional[bool] = ..., block_size: _Optional[int] = ..., model_path: _Optional[str] = ...) -> None: ...

class GetServerInfoRequest(_message.Message):
    __slots__ = ("decisions",)
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    decisions: int
    def __init__(self, decisions: _Optional[int] = ...) -> None: ...

class GetServerInfoResponse(_message.Message):
    __slots__ = ("version", "boot_id", "uptime_ms", "settings", "startup", "load", "decisions_json", "launch_command", "report", "process_id")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    UPTIME_MS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    STARTUP_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_JSON_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_COMMAND_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    version: str
    boot_id: str
    uptime_ms: int
    settings: _containers.RepeatedCompositeFieldContainer[_common_pb2.Setting]
    startup: _containers.RepeatedCompositeFieldContainer[_common_pb2.Timing]
    load: Load
    decisions_json: str
    launch_command: _containers.RepeatedScalarFieldContainer[str]
    report: str
    process_id: int
    def __init__(self, version: _Optional[str] = ..., boot_id: _Optional[str] = ..., uptime_ms: _Optional[int] = ..., settings: _Optional[_Iterable[_Union[_common_pb2.Setting, _Mapping]]] = ..., startup: _Optional[_Iterable[_Union[_common_pb2.Timing, _Mapping]]] = ..., load: _Optional[_Union[Load, _Mapping]] = ..., decisions_json: _Optional[str] = ..., launch_command: _Optional[_Iterable[str]] = ..., report: _Optional[str] = ..., process_id: _Optional[int] = ...) -> None: ...

class GetLoadRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetLoadResponse(_message.Message):
    __slots__ = ("load",)
    LOAD_FIELD_NUMBER: _ClassVar[int]
    load: Load
    def __init__(self, load: _Optional[_Union[Load, _Mapping]] = ...) -> None: ...

class FlushCacheRequest(_message.Message):
    __slots__ = ("timeout_ms",)
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    timeout_ms: int
    def __init__(self, timeout_ms: _Optional[int] = ...) -> None: ...

class FlushCacheResponse(_message.Message):
    __slots__ = ("removed_tokens",)
    REMOVED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    removed_tokens: int
    def __init__(self, removed_tokens: _Optional[int] = ...) -> None: ...

class FreezeGcRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FreezeGcResponse(_message.Message):
    __slots__ = ("frozen_objects",)
    FROZEN_OBJECTS_FIELD_NUMBER: _ClassVar[int]
    frozen_objects: int
    def __init__(self, frozen_objects: _Optional[int] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("timeout_ms",)
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    timeout_ms: int
    def __init__(self, timeout_ms: _Optional[int] = ...) -> None: ...

class DrainResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetLogLevelRequest(_message.Message):
    __slots__ = ("level",)
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    level: str
    def __init__(self, level: _Optional[str] = ...) -> None: ...

class SetLogLevelResponse(_message.Message):
    __slots__ = ("previous",)
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    previous: str
    def __init__(self, previous: _Optional[str] = ...) -> None: ...
