"""Contract messages to plain values and back."""

from __future__ import annotations

from collections.abc import Sequence

from protos.tokenizer.v1 import tokenizer_pb2 as pb
from services.common.prefix_hash import BLOCK_SIZE, block_hashes, root_hash
from services.common.version import VERSION
from services.tokenizer.chat_template import ChatInput
from services.tokenizer.messages import parse_messages, parse_object, parse_tools
from services.tokenizer.model import TokenizerModel


def chat_input(request: pb.RenderChatRequest, *, knows_developer: bool) -> ChatInput:
    """What the template is given. Raises InvalidRequest naming the place."""
    continued = request.continue_final_message
    return ChatInput(
        messages=parse_messages(request.messages_json, knows_developer=knows_developer),
        tools=parse_tools(request.tools_json),
        variables=parse_object(request.template_kwargs_json, "chat_template_kwargs"),
        add_generation_prompt=request.add_generation_prompt if request.HasField("add_generation_prompt") else not continued,
        continue_final_message=continued,
    )


def encoded(ids: Sequence[int], hashing: pb.HashRequest | None, *, count_only: bool) -> pb.Encoded:
    """Ids, their number, and the hashes of their blocks if those were asked for."""
    hashes: list[int] = []
    if hashing is not None:
        space = hashing.cache_namespace
        root = root_hash(hashing.model_digest, space.adapter.digest, space.cache_salt, space.extra_key)
        hashes = block_hashes(root, ids, hashing.block_size or BLOCK_SIZE)
    return pb.Encoded(token_ids=() if count_only else ids, token_count=len(ids), block_hashes=hashes)


def info(model: TokenizerModel, *, max_text_bytes: int, max_batch: int) -> pb.GetTokenizerInfoResponse:
    """The description of a model."""
    return pb.GetTokenizerInfoResponse(
        model=model.name,
        tokenizer_digest=model.digest,
        vocab_size=model.tokens.vocab_size,
        bos_token_id=model.bos_token_id,
        eos_token_ids=model.eos_token_ids,
        has_chat_template=model.templates.default is not None,
        max_text_bytes=max_text_bytes,
        max_batch=max_batch,
        kind=model.kind,
        server_version=VERSION,
        special_tokens=model.special_tokens,
        generation_defaults_json=model.generation_defaults_json,
    )
