"""Prometheus scrapes the running suite, and the chart's alerts fire on injected faults and go quiet afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp

from tests.helm.chart import render
from tests.helm.processes import Release
from tests.helm.prometheus import prometheus, wait_for
from tests.helm.scripted import write_model
from tests.helm.tools import needs
from tests.ops.load import stream, url_of


@needs("prometheus")
async def test_faults_raise_their_alerts_and_no_others(tmp_path: Path) -> None:
    sets = [f"{name}.replicas=1" for name in ("gateway", "tokenizer", "detokenizer", "worker")]
    settings = write_model(tmp_path / "model", step_ms=5.0, oom_above_tokens=400)
    settings["worker"] |= {"max_running_requests": 1, "chunked_prefill_size": 512}
    (tmp_path / "prometheus").mkdir()
    with Release(render("nothing-values.yaml", *sets), tmp_path, settings).running() as release:
        gateway, worker = release.pods["gateway"][0], release.pods["worker-smollm2"][0]
        targets = [f"127.0.0.1:{pod.config['metrics_port']}" for pod in release.all()]
        with prometheus(tmp_path / "prometheus", targets, hasty=True) as watching:
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as client:
                url = url_of(gateway)
                assert (await stream(client, url, 20)).wrong == ""
                assert watching.firing() == set()

                assert (await stream(client, url, 5, "x" * 2000)).wrong == ""
                await asyncio.to_thread(wait_for, lambda: "HeadraceWorkerOutOfMemory" in watching.firing(), "out of memory")

                queue = [asyncio.create_task(stream(client, url, 600, f"queue {i}")) for i in range(8)]
                await asyncio.to_thread(wait_for, lambda: "HeadraceRequestsWaiting" in watching.firing(), "a queue that lasts")
                assert [answer.wrong for answer in await asyncio.gather(*queue)] == [""] * 8

                worker.stop()
                worker.join()
                expected = {"HeadraceNoReadyWorker", "HeadraceTargetDown"}
                await asyncio.to_thread(wait_for, lambda: watching.firing() >= expected, "a worker that is gone")
                worker.start()
                await asyncio.to_thread(worker.wait, "readiness")
                await asyncio.to_thread(wait_for, lambda: watching.firing() == set(), "quiet again")
