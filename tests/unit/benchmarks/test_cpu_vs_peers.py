"""The comparison with peers: its verdicts, and its handling of servers, on servers that generate nothing."""

from __future__ import annotations

import itertools
import json
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks import peers
from benchmarks.peers import page
from benchmarks.peers.clients import Client, Figures, OwnClient, VllmBench, figures
from benchmarks.peers.floors import seconds
from benchmarks.peers.loads import LOADS, LONG_PREFIX, Load
from benchmarks.peers.memory import parse_smaps
from benchmarks.peers.servers import MODEL_NAME, Recipe, Server, wants_to_run
from benchmarks.peers.session import Session
from benchmarks.peers.table import agreement, markdown, rows, text
from benchmarks.targets import BF16, EIGHT, INT8, ONE, START, TARGETS, VLLM
from headrace.launcher.ports import any_free

FEW = Load(EIGHT, users=2, prompts=6, own=8, output=4)


def test_verdicts() -> None:
    tpot = next(t for t in TARGETS if (t.load, t.metric, t.ours, t.peer) == (ONE, "TPOT", INT8, VLLM))
    assert [tpot.judge(ratio, 1.0) for ratio in (0.30, 0.45, 0.46)] == ["goal", "must", "missed"]
    rate = next(t for t in TARGETS if (t.load, t.metric, t.ours) == (EIGHT, "tok/s", BF16))
    assert [rate.judge(ratio, 1.0) for ratio in (1.4, 1.3, 1.29)] == ["goal", "must", "missed"]
    start = next(t for t in TARGETS if t.load == START)
    assert [start.judge(0.4, value) for value in (8.0, 9.0)] == ["goal", "must"]  # a goal in seconds
    assert next(t for t in TARGETS if t.must is None).judge(9.0, 9.0) == ""


def test_every_bound_is_no_looser_than_its_goal() -> None:
    for target in TARGETS:
        if target.must is not None and target.goal is not None:
            assert target.judge(target.goal, 1e9) == "goal"
            assert (target.goal <= target.must) if target.at_most else (target.goal >= target.must)


def test_the_table_holds_medians_of_ratios_of_pairs() -> None:
    values = {(EIGHT, "tok/s", INT8): {0: 200.0, 1: 300.0, 2: 660.0, 3: 1.0}, (EIGHT, "tok/s", VLLM): {0: 100.0, 1: 100.0, 2: 300.0}}
    (row,) = rows(values, {(EIGHT, "tok/s", INT8): 900.0})
    assert (row.ours, row.peer, row.floor, row.rounds) == (300.0, 100.0, 900.0, 3)  # a round that one side missed counts for none
    assert (row.ratio, row.least, row.most) == (2.2, 2.0, 3.0)  # not the ratio of medians, which is 3
    assert " ".join(text([row]).splitlines()[1].split()) == "8 users tok/s headrace int8 300 vLLM 100 900 2.20 2.00–3.00 3 ≥ 1.60 2.20 goal"
    assert markdown([row]).splitlines()[2].endswith("| 2.20 | 2.00–3.00 | 3 | ≥ 1.60 | 2.20 | goal |")


def test_the_page_says_how_it_was_measured() -> None:
    told = page.render({"vllm-bench": []}, page.About(datetime(2026, 1, 2, tzinfo=UTC), 7, "python -m x --rounds 3"))
    assert all(word in told for word in ("2026-01-02", "vllm-bench", "seeds from 7", "`python -m x --rounds 3`", "cores"))


def test_two_clients_are_compared_round_by_round() -> None:
    key = (EIGHT, "tok/s", INT8)
    assert agreement({key: {0: 2.0, 1: 3.0, 2: 9.0}}, {key: {0: 2.0, 1: 2.0}}) == [(*key, 1.25)]
    assert agreement({key: {0: 2.0}}, {}) == []


def test_a_floor_counts_shared_tokens_once() -> None:
    times = {"prefill": 512.0, "decode_16": 1.0}
    assert seconds(LONG_PREFIX, times) == pytest.approx((4 * 2048 + 64 * 128 + 4 * 32) / 1e3)


def test_mappings_without_a_file() -> None:
    smaps = """7f00-7f10 rw-p 00000000 00:00 0
Size:               2048 kB
Rss:                1024 kB
7f10-7f20 r-xp 00000000 fe:00 12                 /lib/x.so
Size:               4096 kB
Rss:                4096 kB
7f20-7f30 rw-p 00000000 00:00 0                  [heap]
Size:                  8 kB
Rss:                   8 kB
"""
    assert parse_smaps(smaps) == [(2048 * 1024, 1024 * 1024)]


def fake(name: str, **more: int) -> Recipe:
    port = any_free("127.0.0.1")
    root = str(Path(peers.__file__).parents[2])
    return Recipe(
        name, (sys.executable, "-m", "tests.fakes.openai_server", str(port), MODEL_NAME), port, "1.0", {"PYTHONPATH": root}, **more
    )


def test_servers_take_turns_and_sleep_in_between(tmp_path: Path) -> None:
    with ExitStack() as stack:
        session = Session(tmp_path, stack, [OwnClient()], seed=1)
        servers = [session.start(fake(name)) for name in (VLLM, INT8)]
        asleep = [[p.status() for p in server.processes()] for server in servers]
        assert all(status == psutil.STATUS_STOPPED for tree in asleep for status in tree)
        session.round(servers, FEW, 0)
        session.round(servers, FEW, 1)
        session.weigh(servers[0], FEW.tokens)
        pids = [p.pid for server in servers for p in server.processes()]
    (values,) = session.values.values()
    assert values[(EIGHT, "tok/s", INT8)].keys() == values[(EIGHT, "tok/s", VLLM)].keys() == {0, 1}
    assert values[("memory", "PSS - KV", VLLM)][0] > 1
    assert not any(psutil.pid_exists(pid) for pid in pids)


class Failing:
    """A client whose requests fail now and then."""

    name = "failing"

    def run(self, url: str, model: str, version: str, load: Load, seed: int) -> Figures:
        return Figures(1.0, 1.0, 1.0, 1.0, 1.0, failed=seed % 2, line=f"seed {seed}")


def test_a_run_with_failures_gives_no_values_and_seeds_are_new(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    client: Client = Failing()
    with ExitStack() as stack:
        session = Session(tmp_path, stack, [client], seed=10)
        server = session.start(fake(INT8))
        for number in range(4):
            session.round([server], FEW, number)
    assert list(session.values["failing"][(EIGHT, "TTFT", INT8)]) == [1, 3]
    said = capsys.readouterr().out
    assert all(said.count(f"seed {seed}\n") == 1 for seed in (11, 12, 13, 14))


def test_vllm_bench_is_asked_for_the_same_load(tmp_path: Path) -> None:
    """Its program is replaced by one that writes down how it was called."""
    result: dict[str, Any] = {"completed": 63, "median_tpot_ms": 1.0, "median_ttft_ms": 2.0, "output_throughput": 3.0, "p99_itl_ms": 4.0}
    result |= {
        "errors": ["", "Traceback\n  x\nValueError: no chunk\n"],
        "duration": 5.0,
        "total_input_tokens": 6,
        "total_output_tokens": 7,
    }
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "vllm"
    program.write_text(
        f"#!{sys.executable}\nimport json, sys\nwords = sys.argv[1:]\n"
        "value = lambda flag: words[words.index(flag) + 1]\n"
        f"json.dump({result!r}, open(value('--result-dir') + '/' + value('--result-filename'), 'w'))\n"
        f"json.dump(words, open({str(tmp_path / 'words.json')!r}, 'w'))\n"
    )
    program.chmod(0o755)
    client = VllmBench(tmp_path, tmp_path / "model")
    found = client.run("http://h:1", "m", "v", LOADS[3], seed=5)
    words = json.loads((tmp_path / "words.json").read_text())
    asked = dict(itertools.pairwise(words))
    assert (asked["--dataset-name"], asked["--prefix-repetition-prefix-len"], asked["--prefix-repetition-suffix-len"]) == (
        "prefix_repetition",
        "1024",
        "64",
    )
    assert (asked["--num-prompts"], asked["--max-concurrency"], asked["--seed"]) == ("64", "16", "5")
    assert found == figures(result, LOADS[3], "v", 5)
    assert found.why == "ValueError: no chunk"
    assert (found.failed, found.tpot, found.rate, found.itl_p99) == (1, 1.0, 3.0, 4.0)
    client.run("http://h:1", "m", "v", LOADS[0], seed=5)
    words = json.loads((tmp_path / "words.json").read_text())
    asked = dict(itertools.pairwise(words))
    assert (asked["--random-input-len"], asked["--random-output-len"], asked["--random-range-ratio"]) == ("512", "128", "0")


def test_vllm_bench_that_fails_is_told(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "vllm").write_text("#!/bin/sh\necho no such model >&2\nexit 3\n")
    (tmp_path / "bin" / "vllm").chmod(0o755)
    with pytest.raises(RuntimeError, match="ended with 3: no such model"):
        VllmBench(tmp_path, tmp_path).run("http://h:1", "m", "v", FEW, 1)


def test_a_server_settles_once_it_uses_no_more_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.peers.servers._IDLE_SAMPLES", 5)
    busy = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass\ntime.sleep(60)"
    server = Server(Recipe("busy", (sys.executable, "-c", busy), any_free("127.0.0.1"), "0"), tmp_path / "log")
    try:
        server.settle()
        (process,) = server.processes()
        assert process.cpu_times().user + process.cpu_times().system >= 0.4
        assert not wants_to_run(process.pid)
    finally:
        server.stop()


def test_a_server_that_dies_is_reported_with_its_log(tmp_path: Path) -> None:
    dead = Recipe("dead", (sys.executable, "-c", "raise SystemExit('no weights')"), any_free("127.0.0.1"), "0")
    server = Server(dead, tmp_path / "log")
    with pytest.raises(RuntimeError, match="dead did not start"):
        server.wait()
    assert "no weights" in (tmp_path / "log").read_text()
