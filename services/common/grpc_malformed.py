"""Requests that are no message of their method's type are the caller's fault: INVALID_ARGUMENT, and no traceback in the log."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from services.common.errors import InvalidRequest
from services.common.grpc_errors import abort


class MalformedInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Wraps the handlers that take one request. Those of streams are left as they are."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any]]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """The handler, which is asked only what could be read."""
        handler: Any = await continuation(handler_call_details)
        if handler is None or handler.request_streaming or handler.request_deserializer is None:
            return handler  # type: ignore[no-any-return]
        make, behaviour = grpc.unary_unary_rpc_method_handler, handler.unary_unary
        if handler.response_streaming:
            make, behaviour = grpc.unary_stream_rpc_method_handler, handler.unary_stream
        if inspect.isasyncgenfunction(behaviour):
            checked = _generator(behaviour)
        elif inspect.iscoroutinefunction(behaviour):
            checked = _coroutine(behaviour)
        else:
            return handler  # type: ignore[no-any-return]
        return make(checked, _reader(handler.request_deserializer), handler.response_serializer)


def _reader(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def read(raw: bytes) -> Any:
        try:
            return deserialize(raw)
        except DecodeError as error:
            return InvalidRequest(f"the request is not a message of this method: {error}", field="request")

    return read


def _coroutine(behaviour: Any) -> Any:
    async def checked(request: Any, context: Any) -> Any:
        if isinstance(request, InvalidRequest):
            await abort(context, request)
        return await behaviour(request, context)

    return checked


def _generator(behaviour: Any) -> Any:
    async def checked(request: Any, context: Any) -> AsyncIterator[Any]:
        if isinstance(request, InvalidRequest):
            await abort(context, request)
        async with aclosing(behaviour(request, context)) as responses:
            async for response in responses:
                yield response

    return checked
