"""No dead series: every family a process exports moves in a scenario built to move it, or is named here with its reason."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from services.common.metric_families import FAMILIES, Kind
from tests.helm.chart import render
from tests.helm.processes import Pod, Release
from tests.helm.scripted import POISON, write_model
from tests.ops.load import stream, url_of
from tests.ops.scrape import Scrape, scrape

# Families that this traffic cannot move, and where they are moved.
ELSEWHERE = {
    "headrace_build_info": "constant",
    "headrace_worker_limit": "constant; compared with /server_info below",
    "headrace_worker_kv_capacity_tokens": "constant; compared in test_metrics_truth",
    "headrace_worker_kv_cache_bytes": "constant; compared in tests/integration/test_scheduler_model",
    "headrace_worker_weight_bytes": "constant; compared in tests/integration/test_scheduler_model",
    "headrace_worker_new_token_ratio": "an estimate; tests/unit/scheduler",
    "headrace_worker_merged_frames_total": "needs a peer that does not read; tests/integration/test_scheduler_service",
    "headrace_detokenizer_state_limit": "constant",
    "headrace_limit": "constant",
    "headrace_slow_clients_total": "needs a client that stalls; tests/unit/gateway_api",
    "headrace_retries_refused_total": "needs a spent budget; tests/unit/gateway_workers",
    "headrace_panic_routing": "needs most breakers open; tests/unit/gateway_workers",
    "headrace_cache_event_gaps_total": "needs lost events; tests/unit/gateway_prefix",
    "headrace_discovery_events_total": "no discovery here; tests/integration/test_discovery",
    "headrace_worker_startup_seconds": "constant after the start",
    "headrace_worker_memory_bound_raises_total": "needs dozens of steps after one that ran out of memory; tests/unit/scheduler",
    "headrace_worker_kv_corrupt_slots_total": "needs slots that are overwritten; tests/unit/engine",
    "headrace_detokenizer_sessions": "one per gateway; compared in test_metrics_truth",
    "headrace_worker_sessions": "one per gateway; compared in test_metrics_truth",
    "headrace_worker_cache_subscribers": "one per gateway; compared in test_metrics_truth",
    "headrace_detokenizer_failed_states_total": "needs a gateway that errs; tests/unit/detokenizer",
    "headrace_tokenizer_rejections_total": "needs a gateway that errs; tests/unit/tokenizer",
    "headrace_grpc_requests_in_flight": "Sessions are constant; tests/unit/metrics",
    "headrace_worker_discarded_tokens_total": "needs the overlap, which CPUs do without; tests/unit/scheduler",
    "headrace_worker_grammar_failures_total": "needs a grammar that cannot be compiled; tests/unit/grammar",
    "headrace_worker_grammar_waiting_requests": "for milliseconds; tests/unit/grammar",
    "headrace_worker_grammars_compiling": "for milliseconds; tests/unit/grammar",
    "headrace_ready": "changes at start and end; tests/helm/test_processes and tests/ops/test_drain",
    "headrace_draining": "ends with the process; test_alerts sees it at work",
}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    folder = tmp_path_factory.mktemp("release")
    sets = ["gateway.replicas=1", "tokenizer.replicas=1", "detokenizer.replicas=1", "worker.replicas=2"]
    settings = write_model(folder / "model", step_ms=3.0, oom_above_tokens=200)
    settings["worker"] |= {"max_total_tokens": 400, "max_running_requests": 6, "schedule_conservativeness": 0.1, "max_queued_requests": 6}
    keys = {"api_key": "user", "admin_api_key": "admin"}
    settings["gateway"] |= {**keys, "cb_failure_threshold": 2, "max_concurrent_requests": 40, "queue_size": 4}
    with Release(render("nothing-values.yaml", *sets), folder, settings).running() as started:
        yield started


class Watch:
    """Names of families that had more than one value."""

    def __init__(self, release: Release) -> None:
        self._release = release
        self._first: dict[tuple[str, int, object], float] = {}
        self.moved: set[str] = set()
        self.seen: set[str] = set()

    def look(self) -> None:
        for pod in self._release.all():
            with contextlib.suppress(OSError):  # one of them is killed on the way
                self._compare(pod, scrape(pod))

    async def keep_looking(self) -> None:
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(0.05)

    def _compare(self, pod: Pod, page: Scrape) -> None:
        for (name, labels), value in page.samples.items():
            self.seen.add(name)
            known = self._first.setdefault((pod.component, pod.index, (name, labels)), value)
            if known != value or (value and name.endswith(("_total", "_count"))):
                self.moved.add(name)


async def post(client: aiohttp.ClientSession, url: str, body: Any, key: str = "user") -> int:
    async with client.post(url, data=body if isinstance(body, bytes) else json.dumps(body), headers=headers(key)) as response:
        await response.read()
        return response.status


def headers(key: str = "user") -> dict[str, str]:
    return {"content-type": "application/json", "authorization": f"Bearer {key}"}


def busy(*workers: Pod) -> None:
    """Wait until one of the workers has decoded a little of something."""
    settled_by = time.monotonic() + 20
    while time.monotonic() < settled_by:
        if any(scrape(worker).sum("headrace_worker_running_requests") for worker in workers):
            time.sleep(0.1)
            return


async def traffic(release: Release) -> None:
    """Something of everything."""
    url = url_of(release.pods["gateway"][0])
    chat = {"model": "smollm2", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    async with aiohttp.ClientSession(headers=headers(), timeout=aiohttp.ClientTimeout(total=120)) as client:
        load = [asyncio.create_task(stream(client, url, 120, f"{i} ".ljust(60, "."), ignore_eos=False)) for i in range(12)]
        await asyncio.gather(*load)
        flood = [asyncio.create_task(stream(client, url, 150, f"flood {i}")) for i in range(120)]
        await asyncio.gather(*flood)
        schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": ["abc"]}}}
        constrained = {"response_format": schema}
        for more in ({}, constrained, constrained, {"temperature": -1}, {"model": "no"}):
            await post(client, f"{url}/v1/chat/completions", {**chat, **more})
        await post(client, f"{url}/v1/chat/completions", chat, key="wrong")
        await post(client, f"{url}/tokenize", {"model": "smollm2", "prompt": "hi"})
        await post(client, f"{url}/v1/chat/completions", {**chat, "messages": [{"role": "user", "content": "x" * 350}]})
        for _ in range(3):
            await stream(client, url, 5, "a prompt that is longer than a block, and asked again")
        leaving = asyncio.create_task(stream(client, url, 300, "leaving"))
        await asyncio.to_thread(busy, *release.pods["worker-smollm2"])
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await post(client, f"{url}/flush_cache", {}, key="admin")
        cut = [asyncio.create_task(stream(client, url, 300, f"cut {i}")) for i in range(4)]
        worker = release.pods["worker-smollm2"][0]
        await asyncio.to_thread(busy, worker)
        worker.stop(signal.SIGKILL)
        worker.join()
        await asyncio.gather(*cut)
        for _ in range(6):
            await stream(client, url, 10, POISON)
        await asyncio.sleep(2)


async def test_every_family_moves(release: Release) -> None:
    watch = Watch(release)
    watch.look()
    looking = asyncio.create_task(watch.keep_looking())
    await traffic(release)
    looking.cancel()
    watch.look()
    declared = {family.name: family for families in FAMILIES.values() for family in families}

    def moves(name: str) -> bool:
        samples = {f"{name}_count"} if declared[name].kind is Kind.HISTOGRAM else {name}
        return bool(samples & watch.moved)

    exported = {name for name in declared if name in watch.seen or f"{name}_count" in watch.seen}
    conditional = {name for name, family in declared.items() if family.when}
    assert declared.keys() - exported <= conditional | ELSEWHERE.keys(), "declared and not exported"
    still = sorted(name for name in exported - ELSEWHERE.keys() if not moves(name))
    assert still == [], "\n".join(still)


def test_the_limits_exported_are_those_in_force(release: Release) -> None:
    worker = release.pods["worker-smollm2"][1]
    exported = scrape(worker).by("headrace_worker_limit", "limit")
    assert exported["max_running_requests"] == 6
    assert 400 in exported.values()


def test_every_exception_is_a_family() -> None:
    assert ELSEWHERE.keys() <= {family.name for families in FAMILIES.values() for family in families}


def test_files_named_for_exceptions_exist() -> None:
    root = Path(__file__).parents[2]
    for reason in ELSEWHERE.values():
        for word in reason.replace(";", " ").split():
            if word.startswith("tests/"):
                assert (root / word).exists() or (root / f"{word}.py").exists(), word
