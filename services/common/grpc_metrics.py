"""Counts, times and gauges of every gRPC call a server answers, health checks excepted."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

import grpc

from services.common.metrics import Metrics

log = logging.getLogger(__name__)

_SKIPPED = "/grpc.health.v1.Health/"


class MetricsInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Wraps the handlers of known methods; calls to unknown ones make no series."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any]]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """The handler, observed."""
        handler: Any = await continuation(handler_call_details)
        path = handler_call_details.method
        if handler is None or path.startswith(_SKIPPED):
            return handler  # type: ignore[no-any-return]
        package, _, name = path.strip("/").rpartition("/")
        method = f"{package.rpartition('.')[2]}/{name}"
        return self._wrapped(handler, method)

    def _wrapped(self, handler: Any, method: str) -> grpc.RpcMethodHandler[Any, Any]:
        kinds = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
        kind = next(k for k in kinds if getattr(handler, k) is not None)
        behaviour = getattr(handler, kind)
        timed = kind == "unary_unary"
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(  # type: ignore[no-any-return]
            self._generator(behaviour, method) if inspect.isasyncgenfunction(behaviour) else self._coroutine(behaviour, method, timed),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _coroutine(self, behaviour: Any, method: str, timed: bool) -> Any:
        async def observed(request: Any, context: Any) -> Any:
            with self._call(method, context, timed):
                return await behaviour(request, context)

        return observed

    def _generator(self, behaviour: Any, method: str) -> Any:
        async def observed(request: Any, context: Any) -> AsyncIterator[Any]:
            with self._call(method, context, False):
                async with aclosing(behaviour(request, context)) as responses:
                    async for response in responses:
                        yield response

        return observed

    @contextmanager
    def _call(self, method: str, context: Any, timed: bool) -> Iterator[None]:
        running = self._metrics.gauge("headrace_grpc_requests_in_flight", method=method)
        began = time.perf_counter()
        running.inc()
        code = "UNKNOWN"
        try:
            yield
            code = _status(context, "OK")
        except (asyncio.CancelledError, GeneratorExit):
            code = "CANCELLED"
            raise
        except BaseException:
            code = _status(context, "UNKNOWN")
            raise
        finally:
            running.dec()
            self._metrics.counter("headrace_grpc_requests_total", method=method, code=code).inc()
            seconds = time.perf_counter() - began
            if timed:
                self._metrics.histogram("headrace_grpc_request_duration_seconds", method=method).observe(seconds)
            if log.isEnabledFor(logging.DEBUG):
                facts = {"request_id": _request_id(context), "method": method, "code": code, "ms": round(seconds * 1000, 1)}
                log.debug("call", extra=facts)


def _status(context: Any, unset: str) -> str:
    """Name of the status a handler set or aborted with."""
    if context.cancelled():
        return "CANCELLED"
    code = context.code()
    return code.name if isinstance(code, grpc.StatusCode) else unset


def _request_id(context: Any) -> str:
    """The request a call serves, as its caller says; empty where it does not."""
    return next((str(value) for key, value in context.invocation_metadata() or () if key == "x-request-id"), "")
