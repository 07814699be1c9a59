"""Every way a call can end is counted once, under its own status, and nothing stays in flight."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from services.common.grpc_metrics import MetricsInterceptor
from services.common.metrics import Metrics


async def unary(request: bytes, context: Any) -> bytes:
    if request == b"abort":
        await context.abort(grpc.StatusCode.NOT_FOUND, "no")
    if request == b"raise":
        raise RuntimeError("bug")
    return request


async def stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request


@pytest.fixture
async def link() -> AsyncIterator[tuple[Metrics, Any]]:
    metrics = Metrics("tokenizer")
    server = grpc.aio.server(interceptors=[MetricsInterceptor(metrics)])
    handlers = {"Unary": grpc.unary_unary_rpc_method_handler(unary), "Stream": grpc.stream_stream_rpc_method_handler(stream)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("headrace.x.v1.X", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield metrics, channel
    await server.stop(None)


def total(metrics: Metrics, method: str, code: str) -> float:
    return metrics.counter("headrace_grpc_requests_total", method=method, code=code).value


async def settled(metrics: Metrics, method: str, *codes: str) -> None:
    for _ in range(200):
        if sum(total(metrics, method, code) for code in codes) == 1:
            break
        await asyncio.sleep(0.01)
    assert sum(total(metrics, method, code) for code in codes) == 1
    assert metrics.gauge("headrace_grpc_requests_in_flight", method=method).value == 0


@pytest.mark.parametrize(("request_", "code"), [(b"hi", "OK"), (b"abort", "NOT_FOUND"), (b"raise", "UNKNOWN")])
async def test_unary_calls(link: tuple[Metrics, Any], request_: bytes, code: str) -> None:
    metrics, channel = link
    call = channel.unary_unary("/headrace.x.v1.X/Unary")(request_)
    if code == "OK":
        assert await call == request_
    else:
        with pytest.raises(grpc.aio.AioRpcError):
            await call
    await settled(metrics, "X/Unary", code)
    assert metrics.histogram("headrace_grpc_request_duration_seconds", method="X/Unary").count == 1


async def test_a_stream_that_is_cancelled(link: tuple[Metrics, Any]) -> None:
    metrics, channel = link
    call = channel.stream_stream("/headrace.x.v1.X/Stream")()
    await call.write(b"a")
    assert await call.read() == b"a"
    assert metrics.gauge("headrace_grpc_requests_in_flight", method="X/Stream").value == 1
    call.cancel()
    await settled(metrics, "X/Stream", "CANCELLED", "OK")


async def test_a_stream_that_ends(link: tuple[Metrics, Any]) -> None:
    metrics, channel = link
    call = channel.stream_stream("/headrace.x.v1.X/Stream")()
    await call.write(b"a")
    await call.done_writing()
    assert [m async for m in call] == [b"a"]
    await settled(metrics, "X/Stream", "OK")


async def test_unknown_methods_make_no_series(link: tuple[Metrics, Any]) -> None:
    metrics, channel = link
    for i in range(3):
        with pytest.raises(grpc.aio.AioRpcError):
            await channel.unary_unary(f"/headrace.x.v1.X/Nope{i}")(b"")
    assert not [m for m in metrics.registry.collect() if m.name == "headrace_grpc_requests" and m.samples]
