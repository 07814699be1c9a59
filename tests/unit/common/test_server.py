"""What every server of the suite does: health, reflection, token, drain."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from services.common.config import ConfigError
from services.common.server import ServiceHost
from services.common.server_config import ServerConfig

NAME = "headrace.tokenizer.v1.Tokenizer"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
async def host() -> AsyncIterator[ServiceHost]:
    made = ServiceHost(ServerConfig(metrics_port=-2), [NAME])
    await made.start()
    yield made
    made.request_stop()
    await made.run()


async def _check(host: ServiceHost, name: str) -> int:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{host.port}") as channel:
        reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=name))
        return int(reply.status)


async def test_alive_from_the_start_ready_when_told(host: ServiceHost) -> None:
    assert await _check(host, "") == SERVING
    assert await _check(host, NAME) == NOT_SERVING
    await host.set_ready(True)
    assert await _check(host, NAME) == SERVING
    await host.set_alive(False)
    assert await _check(host, "") == NOT_SERVING


async def test_unknown_service_is_not_found(host: ServiceHost) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await _check(host, "nope")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_reflection_lists_the_service(host: ServiceHost) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{host.port}") as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        replies = [r async for r in call]
    assert NAME in [s.name for s in replies[0].list_services_response.service]


async def test_draining_is_not_ready_and_waits_for_the_work(host: ServiceHost) -> None:
    await host.set_ready(True)
    seen: list[int] = []

    async def drain() -> None:
        seen.append(await _check(host, NAME))

    host.request_stop()
    assert await host.run(drain) == 0
    assert seen == [NOT_SERVING]


async def test_a_drain_that_never_ends_is_cut_at_the_grace() -> None:
    made = ServiceHost(ServerConfig(metrics_port=-2, drain_timeout=0.05), [NAME])
    await made.start()
    made.request_stop()
    assert await made.run(lambda: asyncio.sleep(3600)) == 0


async def test_the_end_of_the_parent_ends_the_child() -> None:
    read, write = os.pipe()
    made = ServiceHost(ServerConfig(metrics_port=-2, parent_pipe=read), [NAME])
    await made.start()
    os.close(write)
    assert await made.run() == 0
    os.close(read)


async def test_a_taken_port_is_a_config_error(host: ServiceHost) -> None:
    with pytest.raises(ConfigError, match="--port"):
        await ServiceHost(ServerConfig(port=host.port, metrics_port=-2), [NAME]).start()


@pytest.mark.parametrize(
    ("given", "code"), [("right", None), ("wrong", grpc.StatusCode.UNAUTHENTICATED), (None, grpc.StatusCode.UNAUTHENTICATED)]
)
async def test_token(tmp_path: Path, given: str | None, code: grpc.StatusCode | None) -> None:
    token = tmp_path / "token"
    token.write_text("right\n")
    made = ServiceHost(ServerConfig(metrics_port=-2, token_file=str(token)), [NAME])
    await made.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{made.port}") as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        metadata = (("authorization", f"Bearer {given}"),) if given else ()
        call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]), metadata=metadata)
        if code is None:
            assert [r async for r in call]
        else:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                _ = [r async for r in call]
            assert caught.value.code() is code
    assert await _check(made, "") == SERVING
    made.request_stop()
    await made.run()
