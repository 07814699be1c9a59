"""Keys, CORS, ids, probes, admin routes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.api.auth import Access
from gateway.api.http_app import ROUTES
from tests.fakes.stack import Stack, running

KEY, ADMIN = {"authorization": "Bearer user-key"}, {"authorization": "Bearer admin-key"}


@pytest.fixture
async def locked() -> AsyncIterator[Stack]:
    async with running(api_key="user-key", admin_api_key="admin-key", cors_origins=("https://ok.example",)) as stack:
        yield stack


async def test_every_route_but_the_probes_wants_a_key(locked: Stack) -> None:
    for method, path, _, access in ROUTES:
        concrete = path.replace("{model:.+}", "fake").replace("{worker:.+}", "x")
        for headers in ({}, {"authorization": ""}, {"authorization": "Bearer wrong"}, {"authorization": "Basic dXNlcg=="}):
            async with locked.http.request(method, locked.url + concrete, headers=headers) as answer:
                assert (answer.status != 401) == (access is Access.OPEN), (method, path, answer.status)
    for path in ("/V1/Models", "//v1/models", "/v1/models/", "/v1//completions", "/nothing"):
        for method in ("GET", "HEAD", "POST"):
            async with locked.http.request(method, locked.url + path) as answer:
                assert answer.status == 401, (method, path)


async def test_keys_and_admin_keys(locked: Stack) -> None:
    assert (await locked.get("/v1/models", headers=KEY))[0] == 200
    assert (await locked.get("/v1/models", headers={"x-api-key": "user-key"}))[0] == 200
    assert (await locked.get("/v1/models", headers=ADMIN))[0] == 200
    assert (await locked.get("/workers", headers=ADMIN))[0] == 200
    assert (await locked.get("/workers", headers=KEY))[0] == 403
    assert (await locked.get("/server_info", headers=KEY))[0] == 403
    _, info = await locked.get("/server_info", headers=ADMIN)
    shown = {row["name"]: row["value"] for row in info["gateway"]["settings"]}
    assert shown["api_key"] == "set"
    assert "user-key" not in str(info)


async def test_cors_only_for_allowed_origins(locked: Stack) -> None:
    ask = {"origin": "https://ok.example", "access-control-request-headers": "authorization"}
    async with locked.http.options(locked.url + "/v1/models", headers=ask) as answer:
        assert answer.status == 204
        assert answer.headers["access-control-allow-origin"] == "https://ok.example"
        assert answer.headers["access-control-allow-headers"] == "authorization"
    async with locked.http.options(locked.url + "/v1/models", headers={**ask, "origin": "https://evil.example"}) as answer:
        assert "access-control-allow-origin" not in answer.headers
    async with locked.http.get(locked.url + "/v1/models", headers={"origin": "https://ok.example"}) as answer:
        assert answer.status == 401
        assert answer.headers["access-control-allow-origin"] == "https://ok.example"
    body = {"prompt": "x", "max_tokens": 1, "stream": True}
    headers = {**KEY, "origin": "https://ok.example"}
    async with locked.http.post(locked.url + "/v1/completions", json=body, headers=headers) as answer:
        assert answer.headers["access-control-allow-origin"] == "https://ok.example"


async def test_request_ids_go_in_and_out(stack: Stack) -> None:
    body: dict[str, Any] = {"prompt": "x", "max_tokens": 1}

    async def sent(*values: str) -> str:
        headers = [("x-request-id", value) for value in values]
        async with stack.http.post(stack.url + "/v1/completions", json=body, headers=headers) as answer:
            assert answer.status == 200
            return answer.headers["x-request-id"]

    assert await sent("mine-1") == "mine-1"
    assert stack.worker.submits[-1].request_id == "mine-1"
    assert stack.tokenizer.request_ids[-1] == "mine-1"
    made = await sent()
    assert stack.worker.submits[-1].request_id == made
    for hostile in (["a", "b"], ["x" * 5000], ["a b"], ["a;b"]):
        assert await sent(*hostile) not in hostile
    async with stack.http.post(stack.url + "/v1/completions", json={**body, "stream": True}, headers={"x-request-id": "s"}) as answer:
        assert answer.headers["x-request-id"] == "s"


async def test_one_http_id_used_twice_at_once_is_fine(stack: Stack) -> None:
    import asyncio

    stack.worker.pace_s = 0.05
    headers = {"x-request-id": "twice"}
    both = [stack.post("/v1/completions", {"prompt": "x", "max_tokens": 3}, headers=headers) for _ in range(2)]
    assert [status for status, _ in await asyncio.gather(*both)] == [200, 200]
    assert len({submit.request_id for submit in stack.worker.submits}) == 2


async def test_probes(stack: Stack) -> None:
    assert (await stack.get("/health"))[0] == 200
    assert (await stack.get("/ready"))[0] == 200
    before = len(stack.worker.runs)
    assert (await stack.get("/health_generate"))[0] == 200
    assert len(stack.worker.runs) == before + 1


async def test_deep_probes_do_not_pile_up(stack: Stack) -> None:
    import asyncio

    stack.worker.pace_s = 0.3
    answers = await asyncio.gather(*(stack.get("/health_generate") for _ in range(20)))
    assert {status for status, _ in answers} == {200}
    assert len(stack.worker.runs) == 1


async def test_unmatched_paths_share_one_series() -> None:
    async with running(metrics_on_main_port=True) as stack:
        for number in range(100):
            await stack.get(f"/scan/{number}.php")
        for method in ("PROPFIND", "TRACE", "MKCOL", "LOCK"):
            async with stack.http.request(method, stack.url + "/scan") as answer:
                assert answer.status in (404, 405)
        async with stack.http.get(stack.url + "/metrics") as answer:
            lines = [line for line in (await answer.text()).splitlines() if line.startswith("headrace_http_requests_total{")]
        assert sorted(re.findall(r'method="(\w+)"', " ".join(line for line in lines if "unmatched" in line))) == ["GET", "other"]


async def test_workers_through_the_admin_routes(stack: Stack) -> None:
    _, listed = await stack.get("/workers")
    [row] = listed["workers"]
    assert (row["model"], row["state"], row["breaker"]) == ("fake", "ready", "closed")
    url = stack.worker.address
    for spelling in (url, f"http://{url}", f"HTTP://{url}/"):
        async with stack.http.delete(f"{stack.url}/workers/{spelling}") as answer:
            assert answer.status == 200, spelling
        assert (await stack.post("/workers", {"url": f"http://{url}/"}))[0] == 201
    assert (await stack.post("/workers", {"url": url}))[0] == 409
    assert (await stack.post("/workers", {}))[0] == 400
    async with stack.http.delete(stack.url + "/workers/nobody:1") as answer:
        assert answer.status == 404
    assert (await stack.post(f"/workers/{url}/drain", {}))[1]["state"] == "draining"


async def test_tokenize_and_detokenize(stack: Stack) -> None:
    assert (await stack.post("/v1/tokenize", {"prompt": "ab"}))[1]["tokens"] == [97, 98]
    assert (await stack.post("/tokenize", {"prompt": ["a", "b"]}))[1]["tokens"] == [[97], [98]]
    _, chat = await stack.post("/v1/tokenize", {"messages": [{"role": "user", "content": "x"}]})
    assert chat["count"] == len(chat["tokens"]) > 5
    assert (await stack.post("/v1/detokenize", {"tokens": [97, 98]}))[1]["text"] == "ab"
    bad: list[Any] = [{"tokens": [-1]}, {"tokens": [99999]}, {"tokens": "x"}, {}]
    for body in bad:
        assert (await stack.post("/v1/detokenize", body))[0] == 400
    for body in ({"prompt": 5}, {}, {"prompt": [1]}):
        assert (await stack.post("/v1/tokenize", body))[0] == 400


async def test_information(stack: Stack) -> None:
    _, info = await stack.get("/server_info")
    assert info["workers"][0]["report"] == "fake report"
    _, model = await stack.get("/model_info")
    assert model["model"] == "fake"
    _, loads = await stack.get("/v1/loads")
    assert loads["total"]["running"] == 0
    async with stack.http.get(stack.url + "/v1/loads?format=prometheus") as answer:
        assert "headrace_load_running" in await answer.text()


async def test_the_route_is_explained_on_request(stack: Stack) -> None:
    async with stack.http.post(
        stack.url + "/v1/completions", json={"prompt": "x", "max_tokens": 1}, headers={"x-headrace-explain": "1"}
    ) as answer:
        assert answer.headers["x-headrace-worker"] == stack.worker.address
        assert answer.headers["x-headrace-route"]


async def test_the_log_says_what_was_wrong_and_quotes_nothing(stack: Stack, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "gateway.access")
    await stack.post("/v1/completions", {"prompt": "x", "temperature": "my secret"})
    await stack.post("/v1/completions", {"prompt": "x", "model": "other"})
    await stack.post("/v1/completions", {"prompt": "x"})
    bad, unknown, good = ({k: v for k, v in vars(r).items() if k in ("status", "error", "field")} for r in caplog.records[-3:])
    assert bad == {"status": 400, "error": "invalid_request_error", "field": "temperature"}
    assert unknown == {"status": 404, "error": "model_not_found", "field": "model"}
    assert good == {"status": 200}
    assert "my secret" not in caplog.text
