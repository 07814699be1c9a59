"""The comparison with peers: its verdicts, and its handling of servers, on servers that generate nothing."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from benchmarks import peers
from benchmarks.cpu_vs_peers import Load, Session
from benchmarks.peers.servers import Recipe, Server
from benchmarks.targets import BF16, INT8, TARGETS, VLLM, table
from headrace.launcher.ports import any_free


def test_verdicts() -> None:
    tpot = next(t for t in TARGETS if (t.load, t.metric, t.ours, t.peer) == ("1 user", "TPOT", INT8, VLLM))
    assert [tpot.judge(ratio) for ratio in (0.30, 0.45, 0.46)] == ["goal", "must", "missed"]
    rate = next(t for t in TARGETS if (t.load, t.metric, t.ours) == ("8 users", "tok/s", BF16))
    assert [rate.judge(ratio) for ratio in (1.4, 1.3, 1.29)] == ["goal", "must", "missed"]


def test_every_bound_is_no_looser_than_its_goal() -> None:
    for target in TARGETS:
        assert target.judge(target.goal) == "goal"
        assert (target.goal <= target.must) if target.at_most else (target.goal >= target.must)


def test_the_table_holds_medians_of_ratios_of_pairs() -> None:
    values = {("8 users", "tok/s", INT8): [200.0, 300.0, 660.0], ("8 users", "tok/s", VLLM): [100.0, 100.0, 300.0]}
    (line,) = table(values, {("8 users", "tok/s"): 900.0}).splitlines()[1:]
    assert "300.00" in line  # median of ours
    assert "2.20   2.00..3.00" in line  # not the ratio of medians, which is 3
    assert "900.00" in line
    assert line.endswith("goal")


def fake(name: str) -> Recipe:
    port = any_free("127.0.0.1")
    root = str(Path(peers.__file__).parents[2])
    return Recipe(name, (sys.executable, "-m", "tests.fakes.openai_server", str(port)), port, "1.0", {"PYTHONPATH": root})


def test_servers_take_turns_and_sleep_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.peers.servers.MODEL_NAME", "fake")
    load = Load("8 users", {"num_prompts": 6, "max_concurrency": 2, "random_input_len": 8, "random_output_len": 4})
    with ExitStack() as stack:
        session = Session(tmp_path, stack, seed=1)
        servers = [session.start(fake(name)) for name in (VLLM, INT8)]
        asleep = [[p.status() for p in server.processes()] for server in servers]
        assert all(status == psutil.STATUS_STOPPED for tree in asleep for status in tree)
        session.round(servers, load)
        session.round(servers, load)
        session.weigh(servers[0])
        pids = [p.pid for server in servers for p in server.processes()]
    assert len(session.values[("8 users", "tok/s", INT8)]) == len(session.values[("8 users", "tok/s", VLLM)]) == 2
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_server_that_dies_is_reported_with_its_log(tmp_path: Path) -> None:
    dead = Recipe("dead", (sys.executable, "-c", "raise SystemExit('no weights')"), any_free("127.0.0.1"), "0")
    server = Server(dead, tmp_path / "log")
    with pytest.raises(RuntimeError, match="dead did not start"):
        server.wait()
    assert "no weights" in (tmp_path / "log").read_text()
