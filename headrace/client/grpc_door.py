"""The gRPC door."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import grpc

from protos.gateway.v1 import gateway_pb2 as pb
from protos.gateway.v1 import gateway_pb2_grpc as pb_grpc
from services.common.grpc_options import CHANNEL_OPTIONS


class DoorError(Exception):
    """A call failed. `kind` names the gRPC status, such as "gRPC RESOURCE_EXHAUSTED"."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Prompt:
    """Text or token ids; ids win."""

    text: str = ""
    input_ids: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """The settings most callers want; `temperature` 0 is greedy."""

    max_new_tokens: int = 128
    temperature: float = 1.0
    ignore_eos: bool = False
    stop: Sequence[str] = ()
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """How an answer ended, and what it used."""

    reason: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of one choice's text; the last one has `finish`."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish: Finish | None


class AsyncGrpcDoor:
    """For asyncio programs; one channel, any number of calls."""

    def __init__(self, target: str = "127.0.0.1:30001", *, api_key: str = "") -> None:
        self._channel = grpc.aio.insecure_channel(target, options=list(CHANNEL_OPTIONS))
        self._stub = pb_grpc.GatewayStub(self._channel)  # type: ignore[no-untyped-call]
        self._metadata = (("authorization", f"Bearer {api_key}"),) if api_key else ()

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close(None)

    async def generate(
        self, prompt: Prompt, sampling: SamplingSettings, *, model: str = "", stream: bool = True, timeout_s: float = 600.0
    ) -> AsyncIterator[Part]:
        """Parts as they come. Raises DoorError."""
        request = pb.GenerateRequest(model=model, stream=stream, sampling=_sampling(sampling))
        if prompt.input_ids:
            request.input_ids.token_ids.extend(prompt.input_ids)
        else:
            request.text = prompt.text
        try:
            async for message in self._stub.Generate(request, timeout=timeout_s, metadata=self._metadata):
                yield _part(message)
        except grpc.aio.AioRpcError as error:
            raise DoorError(f"gRPC {error.code().name}", error.details() or "") from error

    async def models(self) -> list[str]:
        """Names of the models that are served. Raises DoorError."""
        try:
            answer = await self._stub.ListModels(pb.ListModelsRequest(), metadata=self._metadata, timeout=10.0)
        except grpc.aio.AioRpcError as error:
            raise DoorError(f"gRPC {error.code().name}", error.details() or "") from error
        return [model.id for model in answer.models]


def _sampling(settings: SamplingSettings) -> pb.SamplingParams:
    made = pb.SamplingParams(
        max_new_tokens=settings.max_new_tokens, temperature=settings.temperature, ignore_eos=settings.ignore_eos, stop=settings.stop
    )
    if settings.seed is not None:
        made.seed = settings.seed
    return made


def _part(message: pb.GenerateResponse) -> Part:
    finish = None
    if message.HasField("finish"):
        usage = message.finish.usage
        finish = Finish(message.finish.reason, usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)
    return Part(message.index, message.text, tuple(message.token_ids), finish)
