"""The tokenizer program over gRPC."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from tokenizers import Tokenizer

from protos.common.v1 import common_pb2
from protos.tokenizer.v1 import tokenizer_pb2 as pb
from protos.tokenizer.v1 import tokenizer_pb2_grpc as pb_grpc
from services.common.errors import HeadraceError, InvalidRequest
from services.common.grpc_errors import from_rpc_error
from services.common.prefix_hash import block_hashes, root_hash
from services.common.text.tokenizer_files import find_tokenizer, tokenizer_digest
from tests.integration.programs import Program, run_to_end, running
from tests.unit.text.tokenizers_fixture import specs, write_folder

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' and m.content == 'no' %}{{ raise_exception('no system here') }}{% endif %}"
    "<s>{{ m.role }}:{{ m.content[:1000] }}</s>{% endfor %}{% if add_generation_prompt %}<s>assistant:{% endif %}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_folder(tmp_path_factory.mktemp("model"), specs()["byte_level"])
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture(scope="module")
def program(folder: Path) -> Iterator[Program]:
    with running("services.tokenizer", "--model-path", str(folder), "--max-text-bytes", "2000000", "--max-batch", "8") as started:
        yield started


@pytest.fixture(scope="module")
def library(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


@asynccontextmanager
async def _stub(program: Program) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(program.address) as channel:
        await channel.channel_ready()
        yield pb_grpc.TokenizerStub(channel)  # type: ignore[no-untyped-call]


async def _refused(call: Any) -> HeadraceError:
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await call
    return from_rpc_error(ended.value)


def _chat(*messages: dict[str, Any], **fields: Any) -> pb.RenderChatRequest:
    return pb.RenderChatRequest(messages_json=json.dumps(messages), **fields)


async def test_encode_counts_and_hashes(program: Program, library: Tokenizer, folder: Path) -> None:
    texts = ["the wheel turns and turns", "", "é<s>東京"]
    space = common_pb2.CacheNamespace(adapter=common_pb2.Adapter(digest=b"lora"), cache_salt=b"salt", extra_key="key")
    hashing = pb.HashRequest(model_digest="model", cache_namespace=space)
    async with _stub(program) as stub:
        reply = await stub.Encode(pb.EncodeRequest(texts=texts, hash=hashing))
        counts = await stub.Encode(pb.EncodeRequest(texts=texts, count_only=True))
    ids = [library.encode(text).ids for text in texts]
    assert [list(e.token_ids) for e in reply.encodings] == ids
    assert [e.token_count for e in counts.encodings] == list(map(len, ids))
    assert not any(e.token_ids for e in counts.encodings)
    root = root_hash("model", b"lora", b"salt", "key")
    assert [list(e.block_hashes) for e in reply.encodings] == [block_hashes(root, one) for one in ids]
    assert len(reply.encodings[0].block_hashes) == 1
    assert reply.tokenizer_digest == tokenizer_digest(find_tokenizer(folder))


async def test_500_concurrent_calls_get_their_own_ids(program: Program, library: Tokenizer) -> None:
    async with _stub(program) as stub:

        async def one(text: str) -> list[int]:
            return list((await stub.Encode(pb.EncodeRequest(texts=[text]))).encodings[0].token_ids)

        texts = [f"prompt number {index}" for index in range(500)]
        assert await asyncio.gather(*map(one, texts)) == [library.encode(text).ids for text in texts]


async def test_limits_name_field_and_index(program: Program) -> None:
    async with _stub(program) as stub:
        error = await _refused(stub.Encode(pb.EncodeRequest(texts=["x"] * 9)))
        assert isinstance(error, InvalidRequest)
        assert (error.field, "--max-batch" in error.message) == ("texts", True)
        error = await _refused(stub.Encode(pb.EncodeRequest(texts=["x", "é" * 1_000_001])))
        assert (error.field, "2000002 bytes" in error.message) == ("texts[1]", True)
        assert (await stub.Encode(pb.EncodeRequest(texts=["é" * 1_000_000], count_only=True))).encodings[0].token_count > 0


async def test_chat_and_its_forms(program: Program, library: Tokenizer) -> None:
    async with _stub(program) as stub:
        user = {"role": "user", "content": "10525"}
        reply = await stub.RenderChat(_chat(user))
        assert reply.text == "<s>user:10525</s><s>assistant:"
        assert list(reply.encoding.token_ids) == library.encode(reply.text).ids
        parts = await stub.RenderChat(_chat({"role": "user", "content": [{"type": "text", "text": "10525"}]}))
        assert parts.encoding == reply.encoding
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        asked = {"role": "assistant", "content": None, "tool_calls": [call]}
        nulls = await stub.RenderChat(_chat(user, asked, {"role": "tool", "content": "42"}))
        assert "<s>tool:42</s>" in nulls.text
        developer = await stub.RenderChat(_chat({"role": "developer", "content": "be brief"}))
        assert developer.text.startswith("<s>system:be brief</s>")
        continued = await stub.RenderChat(_chat(user, {"role": "assistant", "content": "I am"}, continue_final_message=True))
        assert continued.text.endswith("assistant:I am")
        counted = await stub.RenderChat(_chat(user, add_generation_prompt=False, count_only=True))
        assert (counted.text, len(counted.encoding.token_ids)) == ("<s>user:10525</s>", 0)


async def test_chat_refusals(program: Program) -> None:
    async with _stub(program) as stub:
        error = await _refused(stub.RenderChat(_chat({"role": "system", "content": "no"})))
        assert isinstance(error, InvalidRequest)
        assert "no system here" in error.message
        error = await _refused(stub.RenderChat(_chat()))
        assert error.field == "messages"
        error = await _refused(stub.RenderChat(_chat({"role": "user", "content": [{"type": "image_url"}]})))
        assert error.field == "messages[0].content[0].type"
        error = await _refused(stub.RenderChat(_chat({"role": "user", "content": "x"}, chat_template="{{ 1 }}")))
        assert error.field == "chat_template"
        error = await _refused(stub.RenderChat(_chat({"role": "user", "content": "x"}, template_kwargs_json="[]")))
        assert error.field == "chat_template_kwargs"


async def test_decode_and_info(program: Program, library: Tokenizer, folder: Path) -> None:
    ids = library.encode("é<s>東京").ids
    async with _stub(program) as stub:
        for skip, text in ((None, "é東京"), (True, "é東京"), (False, "é<s>東京")):
            reply = await stub.Decode(pb.DecodeRequest(sequences=[pb.TokenIds(token_ids=ids)], skip_special_tokens=skip))
            assert list(reply.texts) == [text]
        info = await stub.GetTokenizerInfo(pb.GetTokenizerInfoRequest())
    assert info.kind == "tokenizers"
    assert info.has_chat_template
    assert info.vocab_size == library.get_vocab_size()
    assert info.special_tokens["<s>"] == info.bos_token_id == library.token_to_id("<s>")
    assert list(info.eos_token_ids) == [library.token_to_id("</s>")]
    assert (info.max_batch, info.max_text_bytes) == (8, 2_000_000)
    assert info.tokenizer_digest == tokenizer_digest(find_tokenizer(folder))


async def test_templates_in_requests_where_they_are_allowed(folder: Path) -> None:
    with running("services.tokenizer", "--model-path", str(folder), "--allow-request-chat-template") as program:
        async with _stub(program) as stub:
            reply = await stub.RenderChat(_chat({"role": "user", "content": "x"}, chat_template="[{{ messages[0].content }}]"))
            assert reply.text == "[x]"
            error = await _refused(stub.RenderChat(_chat({"role": "user", "content": "x"}, chat_template="{% for %}")))
            assert error.field == "chat_template"
        assert program.stop() == 0


def test_a_missing_folder_ends_the_program_with_the_reason(tmp_path: Path) -> None:
    ended = run_to_end("services.tokenizer", "--model-path", str(tmp_path / "gone"))
    assert ended.returncode != 0
    assert "gone" in ended.stderr
    ended = run_to_end("services.tokenizer", "--model-pth", "x")
    assert ended.returncode == 2
    assert "--model-path" in ended.stderr
