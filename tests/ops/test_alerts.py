"""Prometheus scrapes the running suite, and the chart's alerts fire on injected faults and go quiet afterwards."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.helm.chart import render
from tests.helm.processes import Pod, Release
from tests.helm.prometheus import Prometheus, prometheus, wait_for
from tests.helm.scripted import POISON, write_model
from tests.helm.test_dashboards import QUERIES, plain
from tests.helm.tools import needs
from tests.ops.load import Answer, stream, url_of

ONLY_IN_FAULTS = {"Gaps in cache events, per second", "Refused by limit, per second"}
pytestmark = needs("prometheus")


@dataclass(frozen=True)
class Watched:
    """A release of one of each, a Prometheus that scrapes it, and a client."""

    release: Release
    prometheus: Prometheus
    client: aiohttp.ClientSession

    @property
    def gateway(self) -> Pod:
        return self.release.pods["gateway"][0]

    @property
    def worker(self) -> Pod:
        return self.release.pods["worker-smollm2"][0]

    async def ask(self, tokens: int, prompt: str = "hi", *, ignore_eos: bool = True) -> Answer:
        return await stream(self.client, url_of(self.gateway), tokens, prompt, ignore_eos=ignore_eos)

    async def fires(self, *alerts: str) -> None:
        await asyncio.to_thread(wait_for, lambda: self.prometheus.firing() >= set(alerts), f"{', '.join(alerts)} fire", 90)

    def firing(self) -> set[str]:
        """What fires now; a machine that is busy with other things makes loops late, which is no fault of the suite."""
        return self.prometheus.firing() - {"HeadraceEventLoopLag"}

    async def quiet(self) -> None:
        try:
            await asyncio.to_thread(wait_for, lambda: self.firing() == set(), "all quiet", 90)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.firing()} fire") from error

    @asynccontextmanager
    async def meanwhile(self, *requests: Callable[[], Awaitable[Answer]]) -> AsyncIterator[list[Answer]]:
        """Each request again and again until the block ends; the answers so far."""
        answers: list[Answer] = []
        done = asyncio.Event()

        async def again(request: Callable[[], Awaitable[Answer]]) -> None:
            while not done.is_set():
                answers.append(await request())

        tasks = [asyncio.create_task(again(request)) for request in requests]
        try:
            yield answers
        finally:
            done.set()
            await asyncio.gather(*tasks)


@asynccontextmanager
async def watched(folder: Path, *, script: dict[str, Any], worker: dict[str, Any], **more: dict[str, Any]) -> AsyncIterator[Watched]:
    """Everything running and silent, with settings of the script, of the worker and of other programs."""
    sets = [f"{name}.replicas=1" for name in ("gateway", "tokenizer", "detokenizer", "worker")]
    settings = write_model(folder / "model", **script)
    settings["worker"] |= worker
    for name, own in more.items():
        settings[name] |= own
    (folder / "prometheus").mkdir()
    with Release(render("nothing-values.yaml", *sets), folder, settings).running() as release:
        targets = [f"127.0.0.1:{pod.config['metrics_port']}" for pod in release.all()]
        with prometheus(folder / "prometheus", targets, hasty=True) as watching:
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=180)) as client:
                made = Watched(release, watching, client)
                assert (await made.ask(5)).wrong == ""
                assert made.firing() == set()
                yield made


def empty_pictures(watching: Prometheus) -> set[str]:
    """Titles of panels with a query that has no answer now."""
    return {title for _, title, query in QUERIES if not watching.ask(plain(query))}


async def test_every_picture_of_the_dashboards_shows_the_running_suite(tmp_path: Path) -> None:
    """Pictures of faults by worker or limit may be empty while there are none; all others have data after some traffic."""
    async with watched(tmp_path, script={"step_ms": 2.0}, worker={}) as suite:
        for _ in range(3):
            await asyncio.gather(*(suite.ask(40, "a prefix that is shared " + str(i)) for i in range(8)))
            await asyncio.sleep(2)
        await asyncio.to_thread(wait_for, lambda: empty_pictures(suite.prometheus) <= ONLY_IN_FAULTS, "pictures with data", 40)


async def test_a_queue_a_pass_too_large_and_a_worker_that_is_gone(tmp_path: Path) -> None:
    script = {"step_ms": 5.0, "oom_above_tokens": 400}
    async with watched(tmp_path, script=script, worker={"max_running_requests": 1, "chunked_prefill_size": 512}) as suite:
        assert (await suite.ask(5, "x" * 2000)).wrong == ""
        await suite.fires("HeadraceWorkerOutOfMemory")

        queue = [asyncio.create_task(suite.ask(600, f"queue {i}")) for i in range(8)]
        await suite.fires("HeadraceRequestsWaiting")
        assert [answer.wrong for answer in await asyncio.gather(*queue)] == [""] * 8

        suite.worker.stop()
        suite.worker.join()
        await suite.fires("HeadraceNoReadyWorker", "HeadraceTargetDown")
        suite.worker.start()
        await asyncio.to_thread(suite.worker.wait, "readiness")
        await suite.quiet()


async def test_tokens_that_come_late_and_an_answer_that_fills_the_pool(tmp_path: Path) -> None:
    async with watched(tmp_path, script={"step_ms": 700.0}, worker={"max_running_requests": 1, "max_total_tokens": 640}) as suite:
        queue = [asyncio.create_task(suite.ask(12, f"slow {i}")) for i in range(4)]
        await suite.fires("HeadraceInterTokenLatencyHigh")
        await suite.fires("HeadraceQueueTimeHigh")
        await suite.fires("HeadraceTimeToFirstTokenHigh")
        assert [answer.wrong for answer in await asyncio.gather(*queue)] == [""] * 4

        large = asyncio.create_task(suite.ask(27, "x" * 612))
        await suite.fires("HeadraceKvPoolFull")
        assert (await large).wrong == ""

        last = asyncio.create_task(suite.ask(30))
        await asyncio.sleep(1)
        suite.worker.stop()
        await suite.fires("HeadraceDrainLong")
        assert (await last).wrong == ""
        assert await asyncio.to_thread(suite.worker.join) == 0


async def test_a_pool_that_is_too_small(tmp_path: Path) -> None:
    worker = {"max_total_tokens": 1500, "max_running_requests": 32, "schedule_conservativeness": 0.1, "max_queued_requests": 32}
    numbers = itertools.count()
    async with watched(tmp_path, script={"step_ms": 5.0}, worker=worker) as suite:
        async with suite.meanwhile(*[lambda: suite.ask(150, f"{next(numbers)} ".ljust(20, "."), ignore_eos=False)] * 40) as answers:
            await suite.fires("HeadraceRetractions")
        assert [answer.wrong for answer in answers if answer.wrong] == []
        await suite.quiet()

        async with suite.meanwhile(*[lambda: suite.ask(150, f"{next(numbers)} ".ljust(20, "."))] * 90) as answers:
            await suite.fires("HeadraceOverloaded")
        assert {answer.status for answer in answers} == {200, 429}
        await suite.quiet()


async def test_a_prompt_layout_that_defeats_the_cache(tmp_path: Path) -> None:
    numbers = itertools.count()
    async with watched(tmp_path, script={"step_ms": 5.0}, worker={}) as suite:
        async with suite.meanwhile(lambda: suite.ask(5, "shared " * 60 + str(next(numbers)))):
            await asyncio.sleep(35)
        async with suite.meanwhile(lambda: suite.ask(5, f"{next(numbers):06} " + "shared " * 60)):
            await suite.fires("HeadraceCacheHitRateFell")


async def test_a_model_and_a_worker_that_fail(tmp_path: Path) -> None:
    gateway = {"resume_patience_secs": 1.0, "hold_secs": 1.0, "cb_failure_threshold": 3, "cb_timeout_duration_secs": 2.0}
    script = {"step_ms": 5.0}
    async with watched(tmp_path, script=script, worker={}, gateway=gateway) as suite:
        async with suite.meanwhile(lambda: suite.ask(10, POISON)) as answers:
            await suite.fires("HeadraceBadLogits")
            await suite.fires("HeadraceFailedRequests")
            await suite.fires("HeadraceBreakerOpen")
        assert answers[0].wrong.startswith("error in the stream")
        assert {answer.status for answer in answers} == {200, 503}
        async with suite.meanwhile(lambda: suite.ask(5)):
            await suite.quiet()

        cut = asyncio.create_task(suite.ask(3000))
        await asyncio.sleep(1)
        suite.worker.stop(9)
        assert suite.worker.join() == -9
        assert "error in the stream" in (await cut).wrong
        await suite.fires("HeadraceResumesFailed")
