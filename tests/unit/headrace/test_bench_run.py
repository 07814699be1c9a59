"""The load generator against a server that generates nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.bench.command import complain
from headrace.bench.config import BenchConfig
from headrace.bench.measure import Measurement, measure, server_flags
from headrace.bench.output import store
from headrace.bench.record import Outcome
from headrace.bench.report import render
from headrace.bench.summary import summarize
from services.common.config import ConfigError
from tests.fakes.openai_server import FakeServer


async def load(server: FakeServer, **settings: Any) -> Measurement:
    few: dict[str, Any] = {"num_prompts": 20, "random_input_len": 16, "random_output_len": 8}
    return await measure(BenchConfig(**{"backend": "openai", "base_url": server.url, **few, **settings}))


@pytest.mark.parametrize("backend", ["openai", "native", "openai-chat"])
async def test_counts_of_every_door(backend: str, tmp_path: Path) -> None:
    more: dict[str, Any] = {}
    if backend == "openai-chat":
        path = tmp_path / "c.jsonl"
        path.write_text("\n".join(json.dumps({"messages": [{"role": "user", "content": "hi"}], "output_len": 8}) for _ in range(20)))
        more = {"dataset_name": "custom", "dataset_path": str(path)}
    async with FakeServer() as server:
        done = await load(server, backend=backend, **more)
    assert done.summary.succeeded == 20
    assert done.summary.output_tokens == done.summary.streamed_chunks == 160  # not the role, the end or the usage
    assert done.about.server_version == "1.2.3"
    assert len(server.seen) == 21  # one to warm up


async def test_the_cap_is_kept() -> None:
    async with FakeServer(gap_s=0.001) as server:
        done = await load(server, max_concurrency=4, num_prompts=40)
    assert server.most_running == 4
    assert done.summary.peak_concurrency == 4


async def test_progress_counts_every_request_once_those_that_fail_too() -> None:
    told: list[tuple[float, float]] = []
    async with FakeServer(fail_every=5) as server:
        config = BenchConfig(backend="openai", base_url=server.url, num_prompts=10, random_input_len=16, random_output_len=8)
        await measure(config, lambda done, whole: told.append((done, whole)))
    assert told == [(done, 10) for done in range(1, 11)]


async def test_chunks_of_several_tokens_are_one_gap() -> None:
    async with FakeServer(per_chunk=4) as server:
        done = await load(server, backend="native", random_output_len=32)
    assert done.summary.output_tokens == 640
    assert done.summary.streamed_chunks == 160
    assert done.summary.cached_tokens == 60


async def test_failures_are_counted_by_kind_and_end_in_a_code(capsys: pytest.CaptureFixture[str]) -> None:
    async with FakeServer(fail_every=5, break_every=7) as server:
        done = await load(server, warmup_requests=0, num_prompts=34, max_concurrency=1)
    assert done.summary.failures == {"HTTP 429": 6, "broken answer": 4}
    assert done.summary.succeeded == 24
    assert complain(done) == 1
    assert "10 of 34 requests failed" in capsys.readouterr().err
    assert "Failed: HTTP 429:" in render(done.summary, done.about)


async def test_a_connection_the_server_gave_up_is_no_failure() -> None:
    async with FakeServer(leave=True) as server:
        done = await load(server, max_concurrency=1, num_prompts=4)
    assert done.summary.failures == {}
    assert len(server.seen) == 5  # with the one to warm up; none was answered twice


async def test_a_server_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="not ready"):
        await measure(BenchConfig(base_url="http://127.0.0.1:9", ready_check_timeout_sec=0.0))


async def test_conversations_carry_the_answers_they_got() -> None:
    async with FakeServer() as server:
        await load(server, dataset_name="conversations", num_prompts=6, turns=3, backend="openai-chat", turn_input_len=4, warmup_requests=0)
    assert [len(body["messages"]) for body in server.seen] == [1, 1, 3, 3, 5, 5]
    assert server.seen[-1]["messages"][1] == {"role": "assistant", "content": " word" * 8}


async def test_every_figure_can_be_recomputed_from_the_file(tmp_path: Path) -> None:
    async with FakeServer(fail_every=6) as server:
        done = await load(server, goodput=("ttft:1000",))
    store(replace(done.config, output=str(tmp_path / "requests.jsonl")), done)
    run, *entries = (json.loads(line) for line in (tmp_path / "requests.jsonl").read_text().splitlines())
    assert [run["kind"], *{entry["kind"] for entry in entries}] == ["run", "request"]
    again = []
    for entry in entries:
        made = Outcome(entry["index"], None, 0, entry["sent"], entry["ended"], error=entry["error"])
        made.prompt_tokens, made.output_tokens, made.cached_tokens = entry["input_len"], entry["output_len"], entry["cached_tokens"]
        if entry["output_len"]:
            now = entry["sent"] + entry["ttft"]
            made.events.append(now)
            for gap in entry["itls"]:
                now += gap
                made.events.append(now)
        again.append(made)
    found, stored = summarize(again, {"ttft": 1.0}).as_json(), run["summary"]
    assert found.keys() == stored.keys()
    for name in ("output_tokens", "failures", "peak_concurrency", "goodput_requests", "input_lengths", "output_lengths"):
        assert found[name] == stored[name]
    for name in ("ttft", "tpot", "itl", "e2e"):
        assert found[name] == pytest.approx(stored[name])


async def test_a_line_per_run_has_the_names_of_other_tools(tmp_path: Path) -> None:
    async with FakeServer() as server:
        done = await load(server)
    file = tmp_path / "runs.jsonl"
    store(replace(done.config, output_file=str(file)), done)
    store(replace(done.config, output_file=str(file), output_details=True), done)
    plain, detailed = (json.loads(line) for line in file.read_text().splitlines())
    assert "ttfts" not in plain
    assert plain["output_throughput"] == done.summary.output_rate
    assert plain["p99_ttft_ms"] == pytest.approx(1e3 * done.summary.ttft.p99)
    assert detailed["output_lens"] == [8] * 20
    assert [len(gaps) for gaps in detailed["itls"]] == [7] * 20
    assert detailed["errors"] == [""] * 20
    assert len(detailed["ttfts"]) == len(detailed["generated_texts"]) == len(detailed["input_lens"]) == 20


async def test_warm_up_prompts_are_none_of_the_run() -> None:
    """The first prompt of a run would else be answered by the prefix cache."""
    async with FakeServer() as server:
        await load(server, dataset_name="conversations", num_prompts=4, turns=1, backend="openai-chat", warmup_requests=3)
    asked = [body["messages"][0]["content"] for body in server.seen]
    assert len(asked) == len(set(asked)) == 7


async def test_a_base_url_with_a_path() -> None:
    async with FakeServer() as server:
        done = await load(server, base_url=f"{server.url}/v1/")
    assert done.summary.succeeded == 20


async def test_words_are_not_tokens(tmp_path: Path) -> None:
    """With a tokenizer both counts are printed: the server's, and that of the text."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"word": 0, "?": 1}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    async with FakeServer(per_chunk=3) as server:
        done = await load(server, tokenizer=str(tmp_path), random_output_len=9)
    assert done.about.retokenized == done.summary.output_tokens == 180
    assert done.summary.streamed_chunks == 60
    assert "Generated tokens, text re-encoded:" in render(done.summary, done.about)


def test_a_report_holds_the_settings_that_change_results() -> None:
    told = {"workers": [{"settings": [{"name": "dtype", "value": "bfloat16"}, {"name": "max_total_num_tokens", "value": "65536"}]}]}
    assert server_flags(told) == "dtype bfloat16, max_total_num_tokens 65536"
    assert server_flags({}) == ""
