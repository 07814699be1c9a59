"""What arrives on the socket: old clients, slow ones, those that ask before they send, and what is no HTTP at all."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time

from tests.fakes.stack import Stack, running, until

STREAM = json.dumps({"prompt": "x", "max_tokens": 3, "stream": True}).encode()
WHOLE = json.dumps({"prompt": "x", "max_tokens": 3}).encode()


def request(body: bytes, *headers: str, version: str = "1.1", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    lines = [f"POST /v1/completions HTTP/{version}", "host: x", "content-type: application/json", f"content-length: {size}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def sent(stack: Stack, *parts: bytes, until_text: bytes = b"") -> bytes:
    """What comes back before the end of the connection, or up to a text."""
    reader, writer = await asyncio.open_connection("127.0.0.1", stack.app.port)
    got = b""
    try:
        for part in parts:
            writer.write(part)
            await asyncio.sleep(0.02)
        async with asyncio.timeout(10):
            while not (until_text and until_text in got):
                new = await reader.read(65536)
                if not new:
                    break
                got += new
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    return got


def data_of(raw: bytes) -> list[bytes]:
    return [line for line in raw.split(b"\n") if line.startswith(b"data: ")]


async def test_http_1_0_streams_are_not_chunked_and_end_with_the_connection(stack: Stack) -> None:
    """Proxies speak it by default."""
    old = await sent(stack, request(STREAM, version="1.0"))
    head, _, body = old.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200")
    assert b"chunked" not in head.lower()
    new = await sent(stack, request(STREAM, "connection: close"))
    assert b"chunked" in new.lower()
    assert body.startswith(b"data: {")
    assert body.endswith(b"data: [DONE]\n\n")
    assert min(len(data_of(body)), len(data_of(new))) > 2  # tokens that come together are one event
    native = json.dumps({"text": "x", "stream": True, "sampling_params": {"max_new_tokens": 3}}).encode()
    raw = await sent(stack, request(native, version="1.0").replace(b"/v1/completions", b"/generate"))
    events = data_of(raw)
    assert len(events) > 1
    assert [b"text" in line for line in events] == [True] * (len(events) - 1) + [False]


async def test_several_requests_in_one_packet_are_answered_in_order(stack: Stack) -> None:
    raw = await sent(stack, request(WHOLE) + request(STREAM) + b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    places = [raw.index(text) for text in (b'"text_completion"', b"text/event-stream", b"[DONE]", b'"alive"')]
    assert places == sorted(places)


async def test_a_body_is_asked_for_only_if_the_request_is_welcome() -> None:
    async with running(api_key="key", max_body_bytes=1000) as stack:
        ask = "expect: 100-continue"
        granted = await sent(stack, request(b"", ask, "authorization: Bearer key", length=len(WHOLE)), WHOLE, until_text=b'"usage"')
        assert granted.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
        stranger = await sent(stack, request(b"", ask, length=len(WHOLE)), until_text=b"invalid_api_key")
        assert stranger.startswith(b"HTTP/1.1 401")
        huge = await sent(stack, request(b"", ask, "authorization: Bearer key", length=2000), until_text=b"payload_too_large")
        assert huge.startswith(b"HTTP/1.1 413")


async def test_chunked_bodies_are_read_whatever_the_pieces(stack: Stack) -> None:
    head = request(b"", "transfer-encoding: chunked", "connection: close").replace(b"content-length: 0\r\n", b"")
    pieces = [b"1\r\n%c\r\n" % byte for byte in WHOLE]
    assert b'"usage"' in await sent(stack, head, *pieces[:5], b"".join(pieces[5:]) + b"0\r\n\r\n")


async def test_what_is_no_http_is_refused_in_json(stack: Stack) -> None:
    for bad in (
        b"BREW /pot HTTP/1.1\r\nhost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        request(WHOLE, "transfer-encoding: chunked"),
        request(WHOLE, "content-length: 3"),
        b"GET /health HTTP/1.1\r\nhost: x\r\nx-a: " + b"a" * 60_000 + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost: x\r\n" + b"x-a: a\r\n" * 10_000 + b"\r\n",
    ):
        raw = await sent(stack, bad)
        head, _, body = raw.partition(b"\r\n\r\n")
        assert head.split(b" ", 2)[1] == b"400", bad[:40]
        assert b"server: headrace" in head.lower()
        assert b"aiohttp" not in raw
        assert json.loads(body)["error"]["type"] == "invalid_request_error"
    assert (await stack.get("/health"))[0] == 200


async def test_who_sends_no_request_is_let_go_and_who_waits_for_an_answer_is_not() -> None:
    async with running(header_timeout_secs=0.3) as stack:
        stack.worker.pace_s = 0.3
        waits = asyncio.create_task(stack.post("/v1/completions", {"prompt": "x", "max_tokens": 4}))
        for begun in (b"", b"POST /v1/completions HTTP/1.1\r\nho"):
            assert await sent(stack, begun) == b""
        assert (await waits)[0] == 200


async def test_a_process_that_stood_still_has_not_waited() -> None:
    async with running(header_timeout_secs=0.2) as stack:
        reader, writer = await asyncio.open_connection("127.0.0.1", stack.app.port)
        await asyncio.sleep(0.05)
        writer.write(request(WHOLE, "connection: close"))
        time.sleep(1.0)  # noqa: ASYNC251
        assert b'"usage"' in await asyncio.wait_for(reader.read(), 10)
        writer.close()


async def test_an_idle_connection_is_closed_after_its_time() -> None:
    async with running(keep_alive_timeout_secs=1) as stack:
        raw = await sent(stack, b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert raw.startswith(b"HTTP/1.1 200")


async def test_a_client_that_leaves_in_the_middle_of_its_body_costs_nothing(stack: Stack) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", stack.app.port)
    writer.write(request(WHOLE, length=5000))
    await asyncio.sleep(0.05)
    writer.close()
    await until(lambda: stack.app.parts.doors.pipeline.active == 0)
    assert stack.worker.runs == []


async def test_probes_answer_head(stack: Stack) -> None:
    for path in ("/health", "/ready", "/liveness", "/readiness"):
        async with stack.http.head(stack.url + path) as answer:
            assert answer.status == 200
            assert await answer.read() == b""


def test_the_gateway_takes_all_the_open_files_it_may_have() -> None:
    code = "import resource as r, gateway.__main__ as g; g.allow_many_connections(); print(*r.getrlimit(r.RLIMIT_NOFILE))"
    shell = ["bash", "-c", f"ulimit -Sn 64; ulimit -Hn 200; exec {sys.executable} -c '{code}'"]
    assert subprocess.run(shell, capture_output=True, text=True, check=True).stdout.split() == ["200", "200"]
