from protos.common.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EncodeRequest(_message.Message):
    __slots__ = ("model", "texts", "add_special_tokens", "hash", "count_only")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    ADD_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    COUNT_ONLY_FIELD_NUMBER: _ClassVar[int]
    model: str
    texts: _containers.RepeatedScalarFieldContainer[str]
    add_special_tokens: bool
    hash: HashRequest
    count_only: bool
    def __init__(self, model: _Optional[str] = ..., texts: _Optional[_Iterable[str]] = ..., add_special_tokens: _Optional[bool] = ..., hash: _Optional[_Union[HashRequest, _Mapping]] = ..., count_only: _Optional[bool] = ...) -> None: ...

class HashRequest(_message.Message):
    __slots__ = ("model_digest", "cache_namespace", "block_size")
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CACHE_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    model_digest: str
    cache_namespace: _common_pb2.CacheNamespace
    block_size: int
    def __init__(self, model_digest: _Optional[str] = ..., cache_namespace: _Optional[_Union[_common_pb2.CacheNamespace, _Mapping]] = ..., block_size: _Optional[int] = ...) -> None: ...

class Encoded(_message.Message):
    __slots__ = ("token_ids", "token_count", "block_hashes")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HASHES_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    token_count: int
    block_hashes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ..., token_count: _Optional[int] = ..., block_hashes: _Optional[_Iterable[int]] = ...) -> None: ...

class EncodeResponse(_message.Message):
    __slots__ = ("encodings", "tokenizer_digest")
    ENCODINGS_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    encodings: _containers.RepeatedCompositeFieldContainer[Encoded]
    tokenizer_digest: str
    def __init__(self, encodings: _Optional[_Iterable[_Union[Encoded, _Mapping]]] = ..., tokenizer_digest: _Optional[str] = ...) -> None: ...

class RenderChatRequest(_message.Message):
    __slots__ = ("model", "messages_json", "tools_json", "template_kwargs_json", "add_generation_prompt", "continue_final_message", "hash", "count_only", "chat_template")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_JSON_FIELD_NUMBER: _ClassVar[int]
    TOOLS_JSON_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_KWARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    ADD_GENERATION_PROMPT_FIELD_NUMBER: _ClassVar[int]
    CONTINUE_FINAL_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    COUNT_ONLY_FIELD_NUMBER: _ClassVar[int]
    CHAT_TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    model: str
    messages_json: str
    tools_json: str
    template_kwargs_json: str
    add_generation_prompt: bool
    continue_final_message: bool
    hash: HashRequest
    count_only: bool
    chat_template: str
    def __init__(self, model: _Optional[str] = ..., messages_json: _Optional[str] = ..., tools_json: _Optional[str] = ..., template_kwargs_json: _Optional[str] = ..., add_generation_prompt: _Optional[bool] = ..., continue_final_message: _Optional[bool] = ..., hash: _Optional[_Union[HashRequest, _Mapping]] = ..., count_only: _Optional[bool] = ..., chat_template: _Optional[str] = ...) -> None: ...

class RenderChatResponse(_message.Message):
    __slots__ = ("encoding", "text", "tokenizer_digest")
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    encoding: Encoded
    text: str
    tokenizer_digest: str
    def __init__(self, encoding: _Optional[_Union[Encoded, _Mapping]] = ..., text: _Optional[str] = ..., tokenizer_digest: _Optional[str] = ...) -> None: ...

class DecodeRequest(_message.Message):
    __slots__ = ("model", "sequences", "skip_special_tokens", "spaces_between_special_tokens")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    SKIP_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SPACES_BETWEEN_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    model: str
    sequences: _containers.RepeatedCompositeFieldContainer[TokenIds]
    skip_special_tokens: bool
    spaces_between_special_tokens: bool
    def __init__(self, model: _Optional[str] = ..., sequences: _Optional[_Iterable[_Union[TokenIds, _Mapping]]] = ..., skip_special_tokens: _Optional[bool] = ..., spaces_between_special_tokens: _Optional[bool] = ...) -> None: ...

class TokenIds(_message.Message):
    __slots__ = ("token_ids",)
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class DecodeResponse(_message.Message):
    __slots__ = ("texts", "tokenizer_digest")
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    texts: _containers.RepeatedScalarFieldContainer[str]
    tokenizer_digest: str
    def __init__(self, texts: _Optional[_Iterable[str]] = ..., tokenizer_digest: _Optional[str] = ...) -> None: ...

class GetTokenizerInfoRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class GetTokenizerInfoResponse(_message.Message):
    __slots__ = ("model", "tokenizer_digest", "vocab_size", "bos_token_id", "eos_token_ids", "has_chat_template", "max_text_bytes", "max_batch", "kind", "server_version", "special_tokens", "generation_defaults_json")
    class SpecialTokensEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    BOS_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    HAS_CHAT_TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    MAX_TEXT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_DEFAULTS_JSON_FIELD_NUMBER: _ClassVar[int]
    model: str
    tokenizer_digest: str
    vocab_size: int
    bos_token_id: int
    eos_token_ids: _containers.RepeatedScalarFieldContainer[int]
    has_chat_template: bool
    max_text_bytes: int
    max_batch: int
    kind: str
    server_version: str
    special_tokens: _containers.ScalarMap[str, int]
    generation_defaults_json: str
    def __init__(self, model: _Optional[str] = ..., tokenizer_digest: _Optional[str] = ..., vocab_size: _Optional[int] = ..., bos_token_id: _Optional[int] = ..., eos_token_ids: _Optional[_Iterable[int]] = ..., has_chat_template: _Optional[bool] = ..., max_text_bytes: _Optional[int] = ..., max_batch: _Optional[int] = ..., kind: _Optional[str] = ..., server_version: _Optional[str] = ..., special_tokens: _Optional[_Mapping[str, int]] = ..., generation_defaults_json: _Optional[str] = ...) -> None: ...
