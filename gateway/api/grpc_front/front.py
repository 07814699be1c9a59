"""headrace.gateway.v1.Gateway."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

import grpc

from gateway.api.auth import Access
from gateway.api.checked import accept_check
from gateway.api.context import free_id
from gateway.api.doors import Doors
from gateway.api.errors import as_headrace
from gateway.api.groups import FlightGroup
from gateway.api.grpc_front.answers import MessageMaker
from gateway.api.grpc_front.bodies import chat_body, generate_body
from gateway.api.grpc_front.field_names import rename
from gateway.api.later import Later
from gateway.api.schema.chat import read_chat
from gateway.api.schema.limits import Defaults
from gateway.api.schema.native import read_native
from gateway.api.schema.reader import ids_of
from gateway.checking.checker import SchemaChecker
from gateway.flight.flight import Flight, Listener
from gateway.flight.spec import GenerateSpec
from gateway.parsing.plan import ParsePlan
from protos.gateway.v1 import gateway_pb2 as pb
from protos.gateway.v1 import gateway_pb2_grpc as pb_grpc
from services.common.errors import Cancelled, HeadraceError, InvalidRequest, Unavailable
from services.common.grpc_errors import abort

Context = grpc.aio.ServicerContext[Any, Any]


class GatewayFront(pb_grpc.GatewayServicer):
    """One method per door; each error becomes a status with details."""

    def __init__(self, doors: Doors, draining: asyncio.Event) -> None:
        self._doors = doors
        self._draining = draining

    def register(self, server: grpc.aio.Server) -> None:
        """Serve calls of this server."""
        pb_grpc.add_GatewayServicer_to_server(self, server)  # type: ignore[no-untyped-call]

    async def Generate(self, request: pb.GenerateRequest, context: Context) -> AsyncIterator[pb.GenerateResponse]:
        """Like `POST /generate`."""
        async with _errors_as_status(context):
            with self._doors.recorder.reading("grpc_generate"):
                call = read_native(generate_body(request), await self._defaults(context, request.model))
                [spec] = call.specs
                await accept_check(self._doors.checker, spec)
            async for message in self._run("grpc_generate", spec, ParsePlan(), request.stream, request.return_token_ids, context):
                yield message

    async def Chat(self, request: pb.ChatRequest, context: Context) -> AsyncIterator[pb.GenerateResponse]:
        """Like `POST /v1/chat/completions`."""
        async with _errors_as_status(context):
            with self._doors.recorder.reading("grpc_chat"):
                call = read_chat(chat_body(request), await self._defaults(context, request.model))
                await accept_check(self._doors.checker, call.spec)
            async for message in self._run("grpc_chat", call.spec, call.plan, request.stream, request.return_token_ids, context):
                yield message

    async def _run(
        self, door: str, spec: GenerateSpec, plan: ParsePlan, stream: bool, token_ids: bool, context: Context
    ) -> AsyncIterator[pb.GenerateResponse]:
        pieces = self._doors.pieces.of(spec.model)
        maker = MessageMaker(plan, model=spec.model, n=spec.n, stream=stream, token_ids=token_ids, pieces=pieces)
        later = Later(maker, pieces) if spec.logprobs is not None else None
        listener: Listener = later if later is not None else maker
        flight = Flight(spec, listener)
        error: HeadraceError | None = None
        self._doors.recorder.began([flight], streaming=stream, model=spec.model)
        try:
            async with FlightGroup(self._doors.pipeline, [flight]) as group:
                ending = asyncio.create_task(_end_with(group, maker, later, flight, self._doors.checker))
                try:
                    while (message := await maker.queue.get()) is not None:
                        yield message
                    await ending
                finally:
                    ending.cancel()
                    with contextlib.suppress(asyncio.CancelledError, HeadraceError):
                        await ending
        except (asyncio.CancelledError, GeneratorExit):
            error = Cancelled("the client has gone")
            raise
        except HeadraceError as refused:
            error = refused
            raise
        finally:
            self._doors.recorder.ended(door, [flight], error, streaming=stream, model=spec.model)

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:
        """Like `GET /v1/models`."""
        async with _errors_as_status(context):
            self._tenant(context)
            models = self._doors.models
            return pb.ListModelsResponse(
                models=[pb.Model(id=name, max_model_len=models.limits(name).room, ready=models.is_ready(name)) for name in models.names()]
            )
        raise AssertionError

    async def Tokenize(self, request: pb.TokenizeRequest, context: Context) -> pb.TokenizeResponse:
        """Like `POST /v1/tokenize`."""
        async with _errors_as_status(context):
            self._tenant(context)
            if not request.texts:
                raise InvalidRequest("texts may not be empty", field="texts")
            special = request.add_special_tokens if request.HasField("add_special_tokens") else None
            model = self._doors.models.resolve(request.model)
            rows = await self._doors.tokenizer.encode(
                model, list(request.texts), add_special=special, request_id=_request_id(context), timeout_s=context.time_remaining()
            )
            return pb.TokenizeResponse(sequences=[pb.TokenIds(token_ids=row) for row in rows])
        raise AssertionError

    async def Detokenize(self, request: pb.DetokenizeRequest, context: Context) -> pb.DetokenizeResponse:
        """Like `POST /v1/detokenize`."""
        async with _errors_as_status(context):
            self._tenant(context)
            model = self._doors.models.resolve(request.model)
            rows = [ids_of(list(row.token_ids), "sequences") for row in request.sequences]
            skip = request.skip_special_tokens if request.HasField("skip_special_tokens") else True
            return pb.DetokenizeResponse(
                texts=await self._doors.tokenizer.decode(model, rows, skip_special=skip, request_id=_request_id(context))
            )
        raise AssertionError

    async def Abort(self, request: pb.AbortRequest, context: Context) -> pb.AbortResponse:
        """Like `POST /abort_request`."""
        async with _errors_as_status(context):
            self._tenant(context)
            if request.all:
                aborted = self._doors.pipeline.abort_all()
                return pb.AbortResponse(aborted=aborted + await self._doors.admin.abort(all_requests=True))
            if not request.request_id:
                raise InvalidRequest("request_id may not be empty", field="request_id")
            aborted = int(self._doors.pipeline.abort(request.request_id))
            return pb.AbortResponse(aborted=aborted or await self._doors.admin.abort(request.request_id))
        raise AssertionError

    def _tenant(self, context: Context) -> str:
        metadata = dict(context.invocation_metadata() or ())
        try:
            return self._doors.keys.check(Access.USER, _text(metadata.get("authorization")), _text(metadata.get("x-api-key")))
        except HeadraceError:
            self._doors.recorder.auth_failure()
            raise

    async def _defaults(self, context: Context, model: str) -> Defaults:
        tenant = self._tenant(context)
        if self._draining.is_set():
            raise Unavailable("this gateway is draining", code="draining")
        doors, settings = self._doors, self._doors.settings
        resolved = doors.models.resolve(model)
        remaining = context.time_remaining()
        limits = [seconds for seconds in (remaining, settings.request_timeout_s) if seconds is not None]
        metadata = dict(context.invocation_metadata() or ())
        return Defaults(
            model=resolved,
            limits=settings.limits,
            sampling=await doors.sampling_defaults(resolved),
            timeout_s=max(0.001, min(limits)) if limits else None,
            tenant=tenant,
            cache_salt=f"key:{tenant}" if settings.isolate_by_key and tenant else "",
            traceparent=_text(metadata.get("traceparent")) or "",
            request_id=free_id(doors, _request_id(context)),
            reasoning_parser=settings.reasoning_parser,
            tool_call_parser=settings.tool_call_parser,
        )


async def _end_with(group: FlightGroup, maker: MessageMaker, later: Later | None, flight: Flight, checker: SchemaChecker) -> None:
    """Close the queue once the flight has ended, whichever way. Raises its error."""
    delivering = asyncio.create_task(later.run()) if later is not None else None
    try:
        await group.done()
        if later is not None and delivering is not None:
            later.end()
            await delivering
        if flight.spec.check is not None:
            await maker.check(checker, flight)
    finally:
        if delivering is not None:
            delivering.cancel()
        maker.end()


def _text(value: str | bytes | None) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _request_id(context: Context) -> str:
    given = _text(dict(context.invocation_metadata() or ()).get("x-request-id")) or ""
    clean = "".join(c for c in given[:128] if (c.isalnum() and c.isascii()) or c in "_.:-")
    return clean if clean and clean == given else uuid.uuid4().hex


@contextlib.asynccontextmanager
async def _errors_as_status(context: Context) -> AsyncIterator[None]:
    """The one place where errors become gRPC statuses."""
    try:
        yield
    except (asyncio.CancelledError, GeneratorExit, grpc.aio.AbortError):
        raise
    except Exception as error:
        request_id = f"grpc-{time.monotonic_ns():x}"
        await abort(context, rename(as_headrace(error, request_id)))
