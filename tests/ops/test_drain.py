"""A signal to any process, or to all at once: what runs is finished, nothing new is taken, and the exit code is 0."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.helm.chart import render
from tests.helm.processes import Release
from tests.helm.scripted import write_model
from tests.ops.load import Answer, stream, url_of

LONG = 3000
Start = Callable[..., AbstractContextManager[Release]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Start a release; `workers` of it, and settings by kind of component."""

    @contextmanager
    def started(workers: int = 1, **settings: dict[str, Any]) -> Iterator[Release]:
        sets = [f"{name}.replicas=1" for name in ("gateway", "tokenizer", "detokenizer")] + [f"worker.replicas={workers}"]
        overrides = write_model(tmp_path / "model", step_ms=1.0)
        for kind, more in settings.items():
            overrides[kind].update(more)
        with Release(render("nothing-values.yaml", *sets), tmp_path, overrides).running() as release:
            yield release

    return started


async def during(url: str, tokens: int, disturb: Callable[[], None]) -> Answer:
    """One long request, disturbed once it has begun."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session:
        request = asyncio.create_task(stream(session, url, tokens))
        await asyncio.sleep(1.0)
        assert not request.done(), request.result()
        await asyncio.to_thread(disturb)
        return await request


def status(url: str) -> int:
    """HTTP status of a GET; 0 if nobody listens."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


@pytest.mark.parametrize("component", ["worker-smollm2", "tokenizer", "detokenizer"])
async def test_a_signalled_service_finishes_what_runs(start: Start, component: str) -> None:
    with start() as release:
        pod = release.pods[component][0]

        def disturb() -> None:
            pod.stop()
            pod.wait("readiness", False, 5)

        answer = await during(url_of(release.pods["gateway"][0]), LONG, disturb)
        assert answer.wrong == ""
        release.pods["gateway"][0].stop()
        assert release.pods["gateway"][0].join() == 0
        assert pod.join() == 0


async def test_a_lone_detokenizer_leaves_as_soon_as_its_successor_is_there(tmp_path: Path) -> None:
    """A rollout of one replica: the successor comes first (maxSurge 1), and the drain is not waited out."""
    sets = ["gateway.replicas=1", "tokenizer.replicas=1", "worker.replicas=1", "detokenizer.replicas=2"]
    with Release(render("nothing-values.yaml", *sets), tmp_path, write_model(tmp_path / "model", step_ms=4.0)).running() as release:
        old, successor = release.pods["detokenizer"]
        successor.stop()
        assert successor.join() == 0
        assert old.config["drain_timeout"] > 200

        def disturb() -> None:
            successor.start()
            successor.wait("readiness")
            old.stop()
            assert old.join(30) == 0

        answer = await during(url_of(release.pods["gateway"][0]), LONG, disturb)
        assert answer.wrong == ""


async def test_a_signalled_gateway_finishes_what_runs_and_takes_nothing_new(start: Start) -> None:
    with start() as release:
        gateway = release.pods["gateway"][0]
        url = url_of(gateway)
        seen: list[int] = []

        def disturb() -> None:
            gateway.stop()
            gateway.wait("readiness", False, 5)
            seen.extend((status(f"{url}/health"), status(f"{url}/ready")))

        answer = await during(url, LONG, disturb)
        assert answer.wrong == ""
        assert seen == [503, 503]
        assert gateway.join() == 0


async def test_a_signal_to_everything_at_once_loses_nothing(start: Start) -> None:
    with start() as release:

        def disturb() -> None:
            for pod in release.all():
                pod.stop(group=True)

        answer = await during(url_of(release.pods["gateway"][0]), LONG, disturb)
        assert answer.wrong == ""
        assert [pod.join() for pod in release.all()] == [0, 0, 0, 0]


async def test_what_outlasts_the_drain_goes_on_elsewhere(start: Start) -> None:
    with start(workers=2, worker={"drain_timeout": 0.5}) as release:
        workers = release.pods["worker-smollm2"]

        def disturb() -> None:
            busy = max(workers, key=_running)
            busy.stop()
            assert busy.join() == 0

        answer = await during(url_of(release.pods["gateway"][0]), LONG, disturb)
        assert answer.wrong == ""
        assert answer.resumes == 1


def _running(pod: Any) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{pod.config['metrics_port']}/metrics") as response:
        lines = response.read().decode().splitlines()
    return float(next(line.split()[-1] for line in lines if line.startswith("headrace_worker_running_requests{")))


@pytest.mark.parametrize("hurry", ["second signal", "force_shutdown"])
async def test_a_hurried_worker_leaves_at_once_and_says_so(start: Start, hurry: str) -> None:
    with start(worker={"force_shutdown": hurry == "force_shutdown"}, gateway={"hold_secs": 1.0, "resume_patience_secs": 2.0}) as release:
        worker = release.pods["worker-smollm2"][0]

        def disturb() -> None:
            worker.stop()
            if hurry == "second signal":
                worker.wait("readiness", False, 5)
                worker.stop()
            assert worker.join(10) == 0

        answer = await during(url_of(release.pods["gateway"][0]), LONG, disturb)
        assert answer.status == 200
        assert "error in the stream" in answer.wrong
