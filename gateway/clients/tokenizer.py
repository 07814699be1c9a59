"""Calls to the tokenizer service: text and messages to ids, ids to text."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from google.protobuf.message import Message

from gateway.clients.http2.channel import Channel
from gateway.flight.spec import ChatPrompt
from protos.tokenizer.v1 import tokenizer_pb2 as pb
from services.common.channel import call_metadata
from services.common.errors import Cancelled, DeadlineExceeded, HeadraceError, Unavailable
from services.common.server_config import ServerConfig

M = TypeVar("M", bound=Message)

_SERVICE = "/headrace.tokenizer.v1.Tokenizer/"
_BACKOFF_FIRST_S = 0.05
_BACKOFF_LAST_S = 1.0
_NONE_FITS = "no_tokenizer"


@dataclass(frozen=True, slots=True)
class TokenizerInfo:
    """What the tokenizer says of itself and of its model's defaults."""

    model: str
    digest: str
    vocab_size: int
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    has_chat_template: bool
    special_tokens: dict[str, int] = field(default_factory=dict)
    generation_defaults: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Service:
    """One address. digest: of the vocabulary it had when it last spoke; empty is not known."""

    channel: Channel
    digest: str = ""


class TokenizerClient:
    """Tokenizer services, several of each model's vocabulary perhaps. A call waits for one that is starting again, up to `hold_s` or its
    deadline.

    digest_of: model → digest of the vocabulary its workers have, empty if that is not known.
    """

    def __init__(
        self, addresses: Sequence[str], *, trust: ServerConfig | None, hold_s: float, digest_of: Callable[[str], str] = lambda model: ""
    ) -> None:
        self._services = [_Service(Channel(address, trust)) for address in addresses]
        self._turn = 0
        self._trust = trust
        self._hold_s = hold_s
        self._digest_of = digest_of
        self._reached = False
        self.failures = 0
        self._info: dict[tuple[str, str], TokenizerInfo] = {}

    @property
    def reached(self) -> bool:
        """Has a tokenizer ever answered, and did the last call reach one?"""
        return self._reached

    async def close(self) -> None:
        """Close the channels."""
        for service in self._services:
            await service.channel.close()

    async def encode(
        self, model: str, texts: Sequence[str], *, add_special: bool | None, request_id: str, timeout_s: float | None
    ) -> list[list[int]]:
        """Token ids of each text."""
        request = pb.EncodeRequest(model=model, texts=texts)
        if add_special is not None:
            request.add_special_tokens = add_special
        reply = await self._call("Encode", request, pb.EncodeResponse, request_id, timeout_s)
        return [list(encoding.token_ids) for encoding in reply.encodings]

    async def render_chat(self, model: str, prompt: ChatPrompt, *, request_id: str, timeout_s: float | None) -> list[int]:
        """Token ids of messages put through the model's chat template."""
        request = pb.RenderChatRequest(
            model=model,
            messages_json=prompt.messages_json,
            tools_json=prompt.tools_json,
            template_kwargs_json=prompt.template_kwargs_json,
            add_generation_prompt=prompt.add_generation_prompt,
            continue_final_message=prompt.continue_final_message,
            chat_template=prompt.chat_template,
        )
        reply = await self._call("RenderChat", request, pb.RenderChatResponse, request_id, timeout_s)
        return list(reply.encoding.token_ids)

    async def decode(self, model: str, sequences: Sequence[Sequence[int]], *, skip_special: bool, request_id: str) -> list[str]:
        """Text of whole sequences."""
        request = pb.DecodeRequest(
            model=model, sequences=[pb.TokenIds(token_ids=ids) for ids in sequences], skip_special_tokens=skip_special
        )
        reply = await self._call("Decode", request, pb.DecodeResponse, request_id, None)
        return list(reply.texts)

    async def info(self, model: str = "", *, timeout_s: float | None = None) -> TokenizerInfo:
        """The tokenizer's description, asked for once per model."""
        key = (model, self._digest_of(model))
        found = self._info.get(key)
        if found is None:
            request = pb.GetTokenizerInfoRequest(model=model)
            reply = await self._call("GetTokenizerInfo", request, pb.GetTokenizerInfoResponse, "", timeout_s)
            found = self._info[key] = TokenizerInfo(
                model=reply.model,
                digest=reply.tokenizer_digest,
                vocab_size=reply.vocab_size,
                bos_token_id=reply.bos_token_id if reply.HasField("bos_token_id") else None,
                eos_token_ids=tuple(reply.eos_token_ids),
                has_chat_template=reply.has_chat_template,
                special_tokens=dict(reply.special_tokens),
                generation_defaults=json.loads(reply.generation_defaults_json or "{}"),
            )
        return found

    async def watch(self, interval_s: float = 1.0) -> None:
        """Ask for a sign of life now and then, so that readiness knows, and who has which vocabulary. Runs until cancelled."""
        while True:
            self._reached = any(await asyncio.gather(*(self._is_there(service) for service in self._services)))
            await asyncio.sleep(interval_s)

    async def _is_there(self, service: _Service) -> bool:
        try:
            await self._once(service, "GetTokenizerInfo", pb.GetTokenizerInfoRequest(), pb.GetTokenizerInfoResponse, "", 5.0)
        except HeadraceError as error:
            return not isinstance(error, Unavailable | DeadlineExceeded)
        return True

    async def _once(self, service: _Service, method: str, request: Message, answer: type[M], request_id: str, timeout_s: float) -> M:
        headers = call_metadata(self._trust, request_id or None)
        try:
            reply = answer.FromString(await service.channel.call(_SERVICE + method, request.SerializeToString(), headers, timeout_s))
        except Unavailable:
            service.digest = ""  # who comes back there may be another
            raise
        service.digest = getattr(reply, "tokenizer_digest", "") or service.digest
        return reply

    def _serving(self, digest: str) -> _Service:
        """The next of those that have the vocabulary, as far as is known. Raises Unavailable where all have another."""
        fitting = [s for s in self._services if not digest or s.digest in ("", digest)]
        if not fitting:
            raise Unavailable(f"no tokenizer has the vocabulary {digest}", code=_NONE_FITS)
        self._turn += 1
        return fitting[self._turn % len(fitting)]

    async def _call(self, method: str, request: Message, answer: type[M], request_id: str, timeout_s: float | None) -> M:
        began = time.monotonic()
        limit = self._hold_s if timeout_s is None else min(self._hold_s, timeout_s)
        wanted = self._digest_of(getattr(request, "model", ""))
        delay = _BACKOFF_FIRST_S
        while True:
            left = limit - (time.monotonic() - began)
            try:
                service = self._serving(wanted)
                reply = await self._once(service, method, request, answer, request_id, max(left, 0.001))
                self._reached = True
                if not wanted or service.digest in ("", wanted):
                    return reply
                delay = _BACKOFF_FIRST_S
                continue
            except HeadraceError as problem:
                error = problem
                if error.code != _NONE_FITS:
                    self._reached = not isinstance(error, Unavailable)
                    self.failures += not self._reached
            if not _is_passing(error) or left - delay <= 0:
                raise _told(error, timeout_s is not None and timeout_s <= self._hold_s)
            await asyncio.sleep(delay * (0.5 + random.random() / 2))
            delay = min(delay * 2, _BACKOFF_LAST_S)


def _is_passing(error: HeadraceError) -> bool:
    return isinstance(error, Unavailable | Cancelled)


def _told(error: HeadraceError, by_deadline: bool) -> HeadraceError:
    """What the client hears: a link that stayed down is Unavailable, its own deadline is DeadlineExceeded."""
    if by_deadline and isinstance(error, Unavailable | DeadlineExceeded):
        return DeadlineExceeded("the request's time ran out before the tokenizer answered")
    if error.code != _NONE_FITS and isinstance(error, DeadlineExceeded | Cancelled | Unavailable):
        return Unavailable(f"the tokenizer does not answer: {error.message}")
    return error
