"""Clients that hang up, are slow, or run out of time; requests end at once and leave nothing behind."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import grpc
import pytest

from gateway.clients import scheduler_convert
from protos.gateway.v1 import gateway_pb2 as gw
from protos.gateway.v1 import gateway_pb2_grpc as gw_grpc
from protos.scheduler.v1 import scheduler_pb2 as pb
from tests.fakes.script import Emit, Finish, Wait
from tests.fakes.stack import Stack, running, until

LONG: dict[str, Any] = {"text": "x", "sampling_params": {"max_new_tokens": 4000}}


def _idle(stack: Stack) -> bool:
    worker = stack.worker
    return bool(worker.runs) and worker.running == 0 and stack.app.parts.doors.pipeline.active == 0


@pytest.mark.parametrize("stream", [True, False])
async def test_a_hang_up_reaches_the_worker(stack: Stack, stream: bool) -> None:
    stack.worker.pace_s = 0.01
    asking = asyncio.create_task(stack.post("/generate", {**LONG, "stream": stream}))
    await until(lambda: stack.worker.runs and stack.worker.runs[0].positions[0] > 2)
    asking.cancel()
    await until(lambda: _idle(stack))
    assert stack.worker.runs[0].cause == pb.CANCEL_CAUSE_CLIENT_DISCONNECT
    await until(lambda: not stack.app.parts.text.sessions[0].open_texts)
    assert stack.app.parts.registry.workers()[0].in_flight.requests == 0


async def test_a_hang_up_before_the_first_word(stack: Stack) -> None:
    stack.worker.script = lambda submit: [Emit([97])] * 0 + [Finish("LENGTH")]
    stack.tokenizer.refuse_next = 1000
    asking = asyncio.create_task(stack.post("/generate", LONG))
    await until(lambda: stack.app.parts.doors.pipeline.active == 1)
    asking.cancel()
    await until(lambda: stack.app.parts.doors.pipeline.active == 0)
    assert not stack.worker.runs


async def test_a_grpc_client_that_cancels_or_runs_out_of_time(stack: Stack) -> None:
    stack.worker.pace_s = 0.01
    async with grpc.aio.insecure_channel(f"127.0.0.1:{stack.app.host.port}") as channel:
        door = gw_grpc.GatewayStub(channel)  # type: ignore[no-untyped-call]
        request = gw.GenerateRequest(text="x", sampling=gw.SamplingParams(max_new_tokens=4000), stream=True)
        call = door.Generate(request)
        await call.read()
        call.cancel()
        await until(lambda: _idle(stack))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in door.Generate(request, timeout=0.3):
                pass
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: len(stack.worker.runs) == 2 and _idle(stack))


async def test_a_deadline_is_504(stack: Stack) -> None:
    stack.worker.pace_s = 0.01
    status, answer = await stack.post("/generate", {**LONG, "timeout": 0.2})
    assert (status, answer["error"]["type"]) == (504, "timeout_error")
    await until(lambda: _idle(stack))
    assert stack.worker.runs[0].cause == pb.CANCEL_CAUSE_DEADLINE


async def test_a_client_that_does_not_read_is_cut_off() -> None:
    async with running(max_unsent_bytes=50_000) as stack:
        stack.worker.script = lambda submit: [*([Emit([97] * 3)] * 1300), Wait(30), Finish("LENGTH")]  # it must not end before it is cut
        loop = asyncio.get_running_loop()
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", stack.app.port))
            body = b'{"text":"x","sampling_params":{"max_new_tokens":4000},"stream":true}'
            await loop.sock_sendall(client, b"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
            await until(lambda: stack.worker.runs and stack.worker.runs[0].cause == pb.CANCEL_CAUSE_SLOW_CONSUMER, 20)
        await until(lambda: stack.app.parts.doors.pipeline.active == 0)
        assert stack.app.parts.doors.keeper.slow_clients == 1


async def test_a_silent_stream_gets_comments() -> None:
    async with running(keepalive_comment_secs=1) as stack:
        stack.worker.script = lambda submit: [Emit([97]), Wait(2.5), Finish("LENGTH")]
        async with stack.http.post(stack.url + "/v1/completions", json={"prompt": "x", "stream": True}) as answer:
            assert b": keep-alive\n\n" in await answer.read()


async def test_hundreds_of_requests_end_once_each(stack: Stack) -> None:
    import random

    rng = random.Random(7)
    stack.worker.pace_s = 0.001

    async def one(number: int) -> str:
        body: dict[str, Any] = {"text": "x", "rid": f"r{number}", "stream": rng.random() < 0.5}
        body["sampling_params"] = {"max_new_tokens": rng.randint(1, 60), "n": rng.choice([1, 1, 2])}
        fate = rng.random()
        asking = asyncio.create_task(stack.post("/generate", {**body, "stream": False}))
        if fate < 0.2:
            await asyncio.sleep(rng.random() * 0.05)
            asking.cancel()
        elif fate < 0.4:
            await asyncio.sleep(rng.random() * 0.05)
            await stack.post("/abort_request", {"rid": f"r{number}"})
        try:
            status, _ = await asking
        except asyncio.CancelledError:
            return "left"
        return str(status)

    gate = asyncio.Semaphore(64)

    async def gated(number: int) -> str:
        async with gate:
            return await one(number)

    ends = await asyncio.gather(*(gated(i) for i in range(200)))
    assert set(ends) <= {"200", "left"}
    await until(lambda: _idle(stack))
    assert not stack.app.parts.text.sessions[0].open_texts
    assert stack.app.parts.registry.workers()[0].in_flight.requests == 0


async def test_a_final_the_gateway_cannot_handle_fails_its_request_alone(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    real = scheduler_convert.finish

    def broken_once(final: pb.Final, spec: Any) -> Any:
        ended.append(final.handle)
        if len(ended) == 1:
            raise ValueError("what is this")
        return real(final, spec)

    monkeypatch.setattr(scheduler_convert, "finish", broken_once)
    short = {"text": "x", "sampling_params": {"max_new_tokens": 3}}
    failed, _ = await asyncio.wait_for(stack.post("/generate", short), 10)
    good, _ = await asyncio.wait_for(stack.post("/generate", short), 10)
    assert (failed, good) == (500, 200)
    assert len(stack.worker.runs) == 2
