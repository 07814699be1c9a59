"""`headrace report` against a running gateway."""

from __future__ import annotations

import asyncio

import pytest

from headrace.cli import main
from headrace.commands.report import lines
from tests.fakes.stack import running


def worker(url: str, model: str | None, prompt: int, cached: int) -> dict[str, object]:
    return {
        "url": url,
        "model": model,
        "state": "ready",
        "in_flight": 1,
        "cache": {"recent_prompt_tokens": prompt, "recent_cached_tokens": cached},
    }


def test_workers_stand_by_model_and_a_model_counts_tokens_not_workers() -> None:
    told = list(lines("cache_aware", [worker("a:1", "m", 900, 810), worker("c:1", "n", 0, 0), worker("b:1", "m", 100, 0)]))
    assert told[0].startswith("policy cache_aware;")
    assert [line.split() for line in told[2:]] == [
        ["a:1", "ready", "1", "900", "810", "90.0%"],
        ["b:1", "ready", "1", "100", "0", "0.0%"],
        ["all", "of", "m", "2", "1,000", "810", "81.0%"],
        ["c:1", "ready", "1", "0", "0", "-"],
        ["all", "of", "n", "1", "0", "0", "-"],
    ]


async def test_a_running_gateway_tells_what_its_workers_found(capsys: pytest.CaptureFixture[str]) -> None:
    async with running(2) as stack:
        for _ in range(4):
            assert (await stack.post("/v1/completions", {"prompt": "sixteen letters.", "max_tokens": 1}))[0] == 200
        assert await asyncio.to_thread(main, ["report", "--base-url", stack.url]) == 0
        told = capsys.readouterr().out.splitlines()
        assert told[0].startswith("policy round_robin;")
        rows = {line.split()[0]: line.split() for line in told[2:]}
        assert {w.address for w in stack.workers} < set(rows)
        assert all(row[-1].endswith("%") and row[-1] != "0.0%" for row in rows.values()), "the fake finds three tokens of each prompt"


def test_a_gateway_that_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--base-url", "http://127.0.0.1:1"]) == 1
    assert "headrace report: http://127.0.0.1:1" in capsys.readouterr().err
