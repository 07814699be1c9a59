"""A tokenizer service over the byte vocabulary."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import grpc

from protos.tokenizer.v1 import tokenizer_pb2 as pb
from protos.tokenizer.v1 import tokenizer_pb2_grpc as pb_grpc
from services.common.errors import InvalidRequest, Unavailable
from services.common.grpc_errors import abort
from tests.fakes import byte_vocabulary as vocabulary


class FakeTokenizer(pb_grpc.TokenizerServicer):
    """`refuse_next`: calls to answer with UNAVAILABLE; messages whose content is "boom" are refused by the template.

    `generation_prompt`: what the template writes after "assistant: ".
    """

    def __init__(self, model: str = "fake", ids: Callable[[str], list[int]] = vocabulary.ids, digest: str = vocabulary.DIGEST) -> None:
        self.model, self.digest = model, digest
        self._ids = ids
        self.refuse_next = 0
        self.calls = 0
        self.request_ids: list[str] = []
        self.generation_prompt = ""
        self.generation_defaults: dict[str, Any] = {}
        self.last_chat: pb.RenderChatRequest | None = None
        self.server: grpc.aio.Server | None = None
        self.address = ""

    async def start(self, port: int = 0) -> str:
        """Serve; returns the address."""
        self.server = grpc.aio.server()
        pb_grpc.add_TokenizerServicer_to_server(self, self.server)  # type: ignore[no-untyped-call]
        self.address = f"127.0.0.1:{self.server.add_insecure_port(f'127.0.0.1:{port}')}"
        await self.server.start()
        return self.address

    async def stop(self) -> None:
        """Stop at once."""
        if self.server is not None:
            await self.server.stop(None)
            self.server = None

    async def _enter(self, context: Any) -> None:
        self.calls += 1
        self.request_ids.append(str(dict(context.invocation_metadata() or ()).get("x-request-id", "")))
        if self.refuse_next > 0:
            self.refuse_next -= 1
            await abort(context, Unavailable("the fake tokenizer refuses"))

    async def Encode(self, request: pb.EncodeRequest, context: Any) -> pb.EncodeResponse:
        await self._enter(context)
        return pb.EncodeResponse(
            encodings=[pb.Encoded(token_ids=self._ids(t), token_count=len(self._ids(t))) for t in request.texts],
            tokenizer_digest=self.digest,
        )

    async def RenderChat(self, request: pb.RenderChatRequest, context: Any) -> pb.RenderChatResponse:
        await self._enter(context)
        self.last_chat = request
        messages = json.loads(request.messages_json)
        if any(message.get("content") == "boom" for message in messages):
            await abort(context, InvalidRequest("no boom here", field="messages"))
        text = request.tools_json + "".join(f"{m['role']}: {m['content']}{json.dumps(m.get('tool_calls', ''))}\n" for m in messages)
        text += "assistant: " + self.generation_prompt if request.add_generation_prompt else ""
        return pb.RenderChatResponse(encoding=pb.Encoded(token_ids=self._ids(text)), text=text, tokenizer_digest=self.digest)

    async def Decode(self, request: pb.DecodeRequest, context: Any) -> pb.DecodeResponse:
        await self._enter(context)
        skip = request.skip_special_tokens if request.HasField("skip_special_tokens") else True
        return pb.DecodeResponse(texts=[vocabulary.text(list(s.token_ids), skip_special=skip) for s in request.sequences])

    async def GetTokenizerInfo(self, request: pb.GetTokenizerInfoRequest, context: Any) -> pb.GetTokenizerInfoResponse:
        return pb.GetTokenizerInfoResponse(
            model=self.model,
            tokenizer_digest=self.digest,
            vocab_size=vocabulary.VOCAB,
            eos_token_ids=[vocabulary.EOS],
            has_chat_template=True,
            special_tokens=vocabulary.SPECIAL,
            generation_defaults_json=json.dumps(self.generation_defaults) if self.generation_defaults else "",
        )
