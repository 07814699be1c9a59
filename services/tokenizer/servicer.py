"""The tokenizer's gRPC door."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import grpc
from jinja2 import TemplateError

from protos.tokenizer.v1 import tokenizer_pb2 as pb
from protos.tokenizer.v1 import tokenizer_pb2_grpc as pb_grpc
from services.common.errors import HeadraceError, InvalidRequest, Overloaded
from services.common.grpc_errors import abort
from services.common.metrics import Metrics
from services.common.text.token_bytes import OutputBytes
from services.common.text.utf8 import decode_all
from services.tokenizer.batcher import Batcher, BatchPolicy
from services.tokenizer.chat_template import ChatTemplate, RenderLimits
from services.tokenizer.config import TokenizerConfig
from services.tokenizer.convert import chat_input, encoded, info
from services.tokenizer.instruments import Instruments
from services.tokenizer.model import TokenizerModel

SERVICE_NAME = "headrace.tokenizer.v1.Tokenizer"
R = TypeVar("R")

_RENDER_THREADS = 4
_QUIET_S = 1.0


class TokenizerServicer(pb_grpc.TokenizerServicer):
    """Encodes, renders and decodes for one model. Requests' `model` is not looked at: there is only one."""

    def __init__(self, config: TokenizerConfig, model: TokenizerModel, metrics: Metrics) -> None:
        self._config = config
        self._model = model
        self._instruments = Instruments(metrics)
        merged = config.dynamic_batch_tokenizer_batch_size if config.enable_dynamic_batch_tokenizer else 1
        policy = BatchPolicy(merged, config.dynamic_batch_tokenizer_batch_timeout if config.enable_dynamic_batch_tokenizer else 0.0)
        self.batcher = Batcher(model.tokenizer, policy, long_threads=config.tokenizer_threads, max_queued_texts=config.max_queued_texts)
        self._renderers = ThreadPoolExecutor(_RENDER_THREADS, "render")
        self._calls = 0
        self._last_call = 0.0

    def register(self, server: grpc.aio.Server) -> None:
        """Serve calls of this server."""
        pb_grpc.add_TokenizerServicer_to_server(self, server)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Let go of the threads."""
        self.batcher.close()
        self._renderers.shutdown(wait=False, cancel_futures=True)

    async def drain(self) -> None:
        """Serve on until no call has come for a while: gateways that are connected finish their requests."""
        while True:
            quiet_s = 0.0 if self._calls else time.monotonic() - self._last_call
            if quiet_s >= _QUIET_S:
                return
            await asyncio.sleep(_QUIET_S - quiet_s)

    async def Encode(self, request: pb.EncodeRequest, context: Any) -> pb.EncodeResponse:
        """See the contract."""
        return await self._answer(context, lambda: self._encode(request))

    async def RenderChat(self, request: pb.RenderChatRequest, context: Any) -> pb.RenderChatResponse:
        """See the contract."""
        return await self._answer(context, lambda: self._render_chat(request))

    async def Decode(self, request: pb.DecodeRequest, context: Any) -> pb.DecodeResponse:
        """See the contract."""
        return await self._answer(context, lambda: self._decode(request))

    async def GetTokenizerInfo(self, request: pb.GetTokenizerInfoRequest, context: Any) -> pb.GetTokenizerInfoResponse:
        """See the contract."""
        return info(self._model, max_text_bytes=self._config.max_text_bytes, max_batch=self._config.max_batch)

    async def _answer(self, context: Any, work: Callable[[], Awaitable[R]]) -> R:
        self._calls += 1
        try:
            return await work()
        except Overloaded as error:
            self._instruments.rejected("queue")
            await abort(context, error)
        except HeadraceError as error:
            await abort(context, error)
        finally:
            self._calls -= 1
            self._last_call = time.monotonic()

    async def _encode(self, request: pb.EncodeRequest) -> pb.EncodeResponse:
        texts = list(request.texts)
        self._check_batch(len(texts), "texts")
        for index, text in enumerate(texts):
            self._check_size(text, f"texts[{index}]")
        add_special = request.add_special_tokens if request.HasField("add_special_tokens") else True
        ids = await self._ids(texts, add_special)
        hashing = request.hash if request.HasField("hash") else None
        encodings = [encoded(one, hashing, count_only=request.count_only) for one in ids]
        return pb.EncodeResponse(encodings=encodings, tokenizer_digest=self._model.digest)

    async def _render_chat(self, request: pb.RenderChatRequest) -> pb.RenderChatResponse:
        began = time.perf_counter()
        try:
            text = await asyncio.get_running_loop().run_in_executor(self._renderers, self._render, request)
        except InvalidRequest:
            self._instruments.rejected("template")
            raise
        self._instruments.render_seconds.observe(time.perf_counter() - began)
        self._check_size(text, "messages")
        [ids] = await self._ids([text], False)
        hashing = request.hash if request.HasField("hash") else None
        encoding = encoded(ids, hashing, count_only=request.count_only)
        return pb.RenderChatResponse(encoding=encoding, text=text, tokenizer_digest=self._model.digest)

    def _render(self, request: pb.RenderChatRequest) -> str:
        """Runs in a thread of its own, as a template may take its time."""
        template = self._template(request)
        chat = chat_input(request, knows_developer=template.knows_developer)
        return template.render(chat, RenderLimits(self._config.max_template_seconds, self._config.max_text_bytes))

    def _template(self, request: pb.RenderChatRequest) -> ChatTemplate:
        templates = self._model.templates
        if not request.chat_template:
            return templates.choose(request.tools_json not in ("", "[]", "null"))
        if not self._config.allow_request_chat_template:
            raise InvalidRequest(
                "chat_template: templates in requests are not accepted here (--allow-request-chat-template)", field="chat_template"
            )
        try:
            return ChatTemplate(request.chat_template, templates.special_tokens, origin="the request")
        except (TemplateError, RecursionError) as error:
            raise InvalidRequest(f"chat_template: {error}", field="chat_template") from error

    async def _decode(self, request: pb.DecodeRequest) -> pb.DecodeResponse:
        self._check_batch(len(request.sequences), "sequences")
        skip = request.skip_special_tokens if request.HasField("skip_special_tokens") else True
        texts: list[str] = []
        for sequence in request.sequences:
            output = OutputBytes(self._model.tokens, skip_special=skip, spaces_between_special=request.spaces_between_special_tokens)
            texts.append(decode_all(b"".join([output.piece(token_id) for token_id in sequence.token_ids])))
            await asyncio.sleep(0)
        return pb.DecodeResponse(texts=texts, tokenizer_digest=self._model.digest)

    async def _ids(self, texts: Sequence[str], add_special: bool) -> list[list[int]]:
        began = time.perf_counter()
        ids = await self.batcher.encode(texts, add_special=add_special)
        instruments = self._instruments
        instruments.encode_seconds.observe(time.perf_counter() - began)
        instruments.texts.inc(len(texts))
        instruments.text_bytes.inc(sum(map(len, texts)))
        instruments.tokens.inc(sum(map(len, ids)))
        return ids

    def _check_batch(self, count: int, field: str) -> None:
        if count > self._config.max_batch:
            self._instruments.rejected("batch")
            raise InvalidRequest(f"{field}: {count} entries, at most {self._config.max_batch} are allowed (--max-batch)", field=field)

    def _check_size(self, text: str, field: str) -> None:
        limit = self._config.max_text_bytes
        if len(text) * 4 > limit and (size := len(text.encode())) > limit:
            self._instruments.rejected("text_bytes")
            raise InvalidRequest(f"{field}: {size} bytes, at most {limit} are allowed (--max-text-bytes)", field=field)
