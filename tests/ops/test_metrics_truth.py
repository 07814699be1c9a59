"""Known traffic against what every process says of it: counters exact, gauges back at idle, series bounded."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest

from tests.helm.chart import render
from tests.helm.processes import Release
from tests.helm.scripted import write_model
from tests.ops.load import stream, url_of
from tests.ops.scrape import Scrape, scrape, settled

POOL = 200_000
PROMPTS = [f"prompt number {i} " + "abc" * i for i in range(8)]
TOKENS = 50


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    folder = tmp_path_factory.mktemp("release")
    sets = [f"{name}.replicas=1" for name in ("gateway", "tokenizer", "detokenizer", "worker")]
    settings = write_model(folder / "model", step_ms=2.0)
    settings["worker"] |= {"max_total_tokens": POOL, "disable_overlap_schedule": True}
    with Release(render("nothing-values.yaml", *sets), folder, settings).running() as started:
        yield started


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=60)) as session:
        yield session


class Change:
    """How each process's numbers changed over some traffic."""

    def __init__(self, release: Release) -> None:
        self._pods = {name.partition("-")[0]: pods[0] for name, pods in release.pods.items()}
        self._before = {name: scrape(pod) for name, pod in self._pods.items()}

    def now(self) -> dict[str, Scrape]:
        """Differences, once the worker is idle."""
        settled(self._pods["worker"], lambda s: s.sum("headrace_worker_running_requests") == 0 == s.sum("headrace_detokenizer_open_states"))
        after = {name: scrape(pod) for name, pod in self._pods.items()}
        return {
            name: Scrape({key: value - self._before[name].samples.get(key, 0.0) for key, value in after[name].samples.items()})
            for name in self._pods
        }


def idle(release: Release) -> dict[str, float]:
    """The gauges that tell of load, when all is quiet."""
    gateway = settled(release.pods["gateway"][0], lambda s: s.sum("headrace_requests_in_flight") == 0)
    worker = settled(release.pods["worker-smollm2"][0], lambda s: s.sum("headrace_worker_kv_used_tokens") == 0)
    detokenizer = settled(release.pods["detokenizer"][0], lambda s: s.sum("headrace_detokenizer_open_states") == 0)
    for page, name in (
        (worker, "headrace_worker_sessions"),
        (worker, "headrace_worker_cache_subscribers"),
        (detokenizer, "headrace_detokenizer_sessions"),
    ):
        assert page.sum(name) == 1, f"{name}: there is one gateway"
    assert worker.sum("headrace_worker_kv_capacity_tokens") == POOL
    assert worker.sum("headrace_worker_kv_capacity_tokens") == sum(
        worker.sum(f"headrace_worker_kv_{kind}_tokens") for kind in ("used", "evictable", "free")
    )
    found = {
        name: page.sum(name)
        for page, names in (
            (gateway, ("headrace_requests_in_flight", "headrace_requests_waiting", "headrace_routed_requests_in_flight")),
            (
                worker,
                tuple(
                    f"headrace_worker_{name}"
                    for name in (
                        "running_requests", "waiting_requests", "grammar_waiting_requests", "waiting_prefill_tokens", "kv_used_tokens",
                        "kv_usage_ratio", "last_turn_age_seconds",
                    )
                ),
            ),
            (detokenizer, ("headrace_detokenizer_open_states",)),
        )
        for name in names
    }  # fmt: skip
    return {name: value for name, value in found.items() if value}


async def test_streams_are_counted_exactly(release: Release, client: aiohttp.ClientSession) -> None:
    change, url = Change(release), url_of(release.pods["gateway"][0])
    answers = [await stream(client, url, TOKENS, prompt) for prompt in PROMPTS]
    answers += await asyncio.gather(*(stream(client, url, TOKENS, prompt) for prompt in PROMPTS))
    assert [answer.wrong for answer in answers] == [""] * 16
    seen = change.now()
    gateway, worker, tokenizer, detokenizer = (seen[name] for name in ("gateway", "worker", "tokenizer", "detokenizer"))
    requests, prompt, output = 16, 2 * sum(map(len, PROMPTS)), 16 * TOKENS

    assert gateway.by("headrace_requests_total", "outcome") == {"ok": requests}
    assert gateway.by("headrace_requests_total", "door") == {"generate": requests}
    assert gateway.by("headrace_finished_choices_total", "reason") == {"length": requests}
    assert gateway.by("headrace_http_requests_total", "route") == {"/generate": requests}
    assert gateway.sum("headrace_prompt_tokens_total") == prompt
    assert gateway.sum("headrace_generation_tokens_total") == output
    for histogram, count in (
        ("time_to_first_token_seconds", requests),
        ("e2e_request_latency_seconds", requests),
        ("inter_token_latency_seconds", output - requests),
        ("time_per_output_token_seconds", requests),
        ("http_request_duration_seconds", requests),
    ):
        assert gateway.sum(f"headrace_{histogram}_count") == count, histogram
        assert gateway.sum(f"headrace_{histogram}_bucket", le="+Inf") == count
        assert gateway.sum(f"headrace_{histogram}_sum") > 0
    stages = dict.fromkeys(("tokenize", "admission", "route", "accept", "first_token", "decode"), float(requests))
    assert gateway.by("headrace_request_stage_seconds_count", "stage") == stages
    assert gateway.sum("headrace_request_prompt_tokens_sum") == prompt
    assert gateway.sum("headrace_request_generation_tokens_sum") == output
    assert gateway.sum("headrace_routed_requests_total") == requests
    assert gateway.sum("headrace_routing_decisions_total") == requests

    sources = worker.by("headrace_worker_prefill_tokens_total", "source")
    assert sum(sources.values()) == prompt
    assert sources["device_hit"] >= sum(len(p) - 1 for p in PROMPTS)
    assert gateway.by("headrace_cached_prompt_tokens_total", "source") == {"device": sources["device_hit"]}
    assert gateway.sum("headrace_routing_found_cached_tokens_total") == sources["device_hit"]
    assert worker.sum("headrace_worker_generation_tokens_total") == output
    assert worker.by("headrace_worker_choices_total", "reason") == {"length": requests}
    for histogram in ("queue_time", "prefill_time", "time_to_first_token", "request_duration"):
        assert worker.sum(f"headrace_worker_{histogram}_seconds_count") == requests, histogram
    steps = worker.by("headrace_worker_steps_total", "mode")
    assert worker.by("headrace_worker_step_seconds_count", "mode") == steps
    assert worker.sum("headrace_worker_step_rows_sum") == output

    assert tokenizer.sum("headrace_tokenizer_texts_total") == requests
    assert tokenizer.sum("headrace_tokenizer_tokens_total") == prompt
    assert tokenizer.sum("headrace_tokenizer_text_bytes_total") == prompt
    assert tokenizer.sum("headrace_grpc_requests_total", method="Tokenizer/Encode", code="OK") == requests
    assert detokenizer.sum("headrace_detokenizer_opened_states_total") == requests
    assert detokenizer.sum("headrace_detokenizer_tokens_total") == output
    assert detokenizer.sum("headrace_detokenizer_text_bytes_total") == output
    assert idle(release) == {}


async def test_refusals_are_counted_by_kind(release: Release, client: aiohttp.ClientSession) -> None:
    change, url = Change(release), url_of(release.pods["gateway"][0])
    bodies: list[dict[str, Any]] = [
        {"text": "hi", "sampling_params": {"temperature": -1}},
        {"text": "hi", "model": "nope"},
        {"text": "x" * 30_000, "sampling_params": {"max_new_tokens": 4}},
    ]
    codes = []
    for body in bodies:
        async with client.post(f"{url}/generate", json=body) as response:
            codes.append(response.status)
    assert codes == [400, 404, 400]
    gateway = change.now()["gateway"]
    assert gateway.by("headrace_requests_total", "outcome") == {"invalid_request": 2, "not_found": 1}
    assert gateway.by("headrace_requests_total", "door") == {"generate": 3}
    assert gateway.by("headrace_http_requests_total", "code") == {"400": 2, "404": 1}
    assert gateway.sum("headrace_generation_tokens_total") == 0
    assert idle(release) == {}


async def test_a_first_token_is_counted_while_the_answer_goes_on(release: Release, client: aiohttp.ClientSession) -> None:
    change, url = Change(release), url_of(release.pods["gateway"][0])
    name = "headrace_time_to_first_token_seconds_count"
    begun = scrape(release.pods["gateway"][0]).sum(name) + 1
    running = asyncio.create_task(stream(client, url, 3000, "a long one"))
    seen = await asyncio.to_thread(settled, release.pods["gateway"][0], lambda s: s.sum(name) == begun)
    assert seen.sum(name) == begun
    assert seen.sum("headrace_requests_in_flight") == 1, "it is not over yet"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert idle(release) == {}
    assert change.now()["gateway"].sum(name) == 1


async def test_fifty_clients_that_leave_at_once_leave_nothing_behind(release: Release, client: aiohttp.ClientSession) -> None:
    change, url = Change(release), url_of(release.pods["gateway"][0])
    worker = release.pods["worker-smollm2"][0]
    requests = [asyncio.create_task(stream(client, url, 3000, f"leaving {i}")) for i in range(50)]
    busy = await asyncio.to_thread(settled, worker, lambda s: s.sum("headrace_worker_running_requests") == 50)
    assert busy.sum("headrace_worker_running_requests") == 50
    assert busy.sum("headrace_worker_kv_used_tokens") > 50
    for request in requests:
        request.cancel()
    await asyncio.gather(*requests, return_exceptions=True)
    assert idle(release) == {}
    seen = change.now()
    assert seen["gateway"].by("headrace_aborted_requests_total", "cause") == {"client_disconnect": 50}
    assert seen["gateway"].by("headrace_requests_total", "outcome") == {"cancelled": 50}
    assert seen["worker"].by("headrace_worker_choices_total", "reason") == {"abort": 50}
    assert seen["worker"].by("headrace_worker_aborts_total", "cause") == {"client_disconnect": 50}


def test_scanners_make_no_series(release: Release) -> None:
    pod = release.pods["gateway"][0]

    def ask(method: str, path: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", pod.config["port"], timeout=10)
        connection.request(method, path)
        connection.getresponse().read()
        connection.close()

    ask("GET", "/warm")
    ask("PROPFIND", "/warm")
    before = scrape(pod)
    for i in range(300):
        ask("PROPFIND" if i % 10 == 0 else "GET", f"/{i}/wp-login.php?{i}")
    after = scrape(pod)
    assert after.series() == before.series()
    counted = [page.sum("headrace_http_requests_total", route="unmatched") for page in (before, after)]
    assert counted[1] - counted[0] == 300
