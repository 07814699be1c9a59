"""No replica of a text service idles, also after one was replaced."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp

from tests.helm.chart import render
from tests.helm.processes import Pod, Release
from tests.helm.scripted import write_model
from tests.ops.load import stream, url_of
from tests.ops.scrape import scrape

REQUESTS = 120


async def shares(release: Release) -> dict[str, list[float]]:
    """Share of the work each replica does of some requests, by component."""

    def counted(name: str, counter: str) -> dict[int, float]:
        return {pod.index: scrape(pod).sum(counter) for pod in release.pods[name]}

    watched = {"tokenizer": "headrace_tokenizer_texts_total", "detokenizer": "headrace_detokenizer_opened_states_total"}
    before = {name: counted(name, counter) for name, counter in watched.items()}
    async with aiohttp.ClientSession() as client:
        url = url_of(release.pods["gateway"][0])
        for _ in range(REQUESTS // 12):
            answers = await asyncio.gather(*(stream(client, url, 20, f"request {i}") for i in range(12)))
            assert [answer.wrong for answer in answers] == [""] * 12
    after = {name: counted(name, counter) for name, counter in watched.items()}
    return {name: [(after[name][i] - before[name][i]) / REQUESTS for i in before[name]] for name in watched}


async def replace(pod: Pod) -> None:
    pod.stop()
    await asyncio.to_thread(pod.join)
    pod.start()
    await asyncio.to_thread(pod.wait, "readiness")
    await asyncio.sleep(3)  # a link that was lost is made again within two seconds


async def test_each_of_three_replicas_does_its_part(tmp_path: Path) -> None:
    sets = ["gateway.replicas=1", "worker.replicas=1", "tokenizer.replicas=3", "detokenizer.replicas=3"]
    with Release(render("nothing-values.yaml", *sets), tmp_path, write_model(tmp_path / "model")).running() as release:
        for share in (await shares(release)).values():
            assert min(share) >= 0.2
        await asyncio.gather(replace(release.pods["tokenizer"][1]), replace(release.pods["detokenizer"][1]))
        for share in (await shares(release)).values():
            assert min(share) >= 0.2
