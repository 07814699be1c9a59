"""The small subcommands: what they print and with which code they end."""

from __future__ import annotations

import itertools
import json
import threading
from pathlib import Path

import pytest

from headrace.capacity import CacheShape, Capacity, verdict
from headrace.check.determinism import Answer, check
from headrace.cli import COMMANDS, main
from headrace.commands.capacity import memory, shape_from
from headrace.commands.serve import with_local_model
from headrace.launcher.args import check as check_flags
from headrace.launcher.args import split
from headrace.launcher.config import UpConfig
from headrace.launcher.plan import Machine, plan
from headrace.launcher.ports import assign
from headrace.launcher.startup import door_of
from headrace.models.resolve import Resolved
from services.common.config import ConfigError


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    overview = capsys.readouterr().out
    for name in COMMANDS:
        assert name in overview
        try:
            code = main([name, "--help"])
        except SystemExit as end:  # argparse leaves this way
            code = int(end.code or 0)
        assert code == 0, name
        assert "usage" in capsys.readouterr().out


def test_unknown_commands_get_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serv"]) == 2
    assert "did you mean serve?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        (CacheShape(28, 8, 128), "bfloat16", 114_688),  # Qwen3-0.6B
        (CacheShape(32, 8, 128), "bfloat16", 131_072),  # Llama-3.1-8B
        (CacheShape(30, 3, 64), "bfloat16", 23_040),  # SmolLM2-135M
        (CacheShape(30, 3, 64), "float32", 46_080),
        (CacheShape(80, 8, 128), "bfloat16", 327_680),  # Llama-3.1-70B
        (CacheShape(24, 2, 64), "float16", 12_288),  # Qwen2.5-0.5B
    ],
)
def test_bytes_per_token(shape: CacheShape, dtype: str, expected: int) -> None:
    assert shape.bytes_per_token(dtype) == expected


def test_the_verdict_is_pool_over_context() -> None:
    assert Capacity(23_040, 100_000, 2_000, 50).contexts == 50
    assert Capacity(114_688, 181_574, 640, 32).contexts == 283
    assert "verdict             enough" in verdict(Capacity(23_040, 100_000, 2_000, 50))
    assert "not enough: 14 requests would wait" in verdict(Capacity(23_040, 100_000, 2_000, 64))


def test_shapes_and_sizes_are_read() -> None:
    raw = {"num_hidden_layers": 2, "num_attention_heads": 8, "hidden_size": 512}
    assert shape_from(raw) == CacheShape(2, 8, 64)
    with pytest.raises(ConfigError, match="num_hidden_layers"):
        shape_from({"num_attention_heads": 8})
    assert [memory(text) for text in ("4GiB", "4g", "512M", "1000")] == [4 << 30, 4 << 30, 512 << 20, 1000]


def test_flags_go_to_whom_they_belong(tmp_path: Path) -> None:
    found = split(["--port", "5", "--max-total-tokens", "4k", "--gateway.policy=random", "--tokenizer.max-batch", "3", "--workers=2"])
    assert found.up == ["--port", "5", "--workers=2"]
    assert found.services["scheduler"] == ["--max-total-tokens", "4k"]
    assert found.services["gateway"] == ["--policy=random"]
    assert found.services["tokenizer"] == ["--max-batch", "3"]
    file = tmp_path / "up.yaml"
    file.write_text("port: 7\nmax_total_tokens: 8k\ngateway:\n  policy: random\n")
    found = split(["--config", str(file), "--port", "9"])
    assert found.up == ["--port=7", "--port", "9"]  # the later one wins
    assert found.services["scheduler"] == ["--max-total-tokens=8k"]
    assert found.services["gateway"] == ["--policy=random"]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--max-total-token", "1"], "did you mean --max-total-tokens"),
        (["--prt", "1"], "did you mean --port"),
        (["--gateway.polcy", "1"], "did you mean --gateway.policy"),
    ],
)
def test_unknown_flags_name_the_nearest(argv: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        split(argv)


def test_the_plan_of_two_workers() -> None:
    arguments = split(["--workers", "2", "--cpu-threads", "7", "--gateway.policy", "random"])
    ports = assign(30000, "127.0.0.1", 2, free=lambda *_: True)
    specs = plan(UpConfig(workers=2), arguments, Resolved(Path("/m"), "name"), ports, Machine(cores=4))
    assert [(s.name, s.stage) for s in specs] == [("tokenizer", 3), ("detokenizer", 2), ("worker-0", 1), ("worker-1", 1), ("gateway", 0)]
    worker, gateway = specs[2].arguments, specs[4].arguments
    assert worker[worker.index("--cpu-threads") + 1] == "2"
    assert worker[-2:] == ("--cpu-threads", "7")  # what the user says comes last and wins
    at = gateway.index("--workers")
    assert gateway[at + 1 : at + 3] == ("127.0.0.1:30100", "127.0.0.1:30101")


def test_the_launcher_knows_the_keys_its_own_gateway_wants(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("first\nsecond\n")
    open_door = door_of(check_flags(split([])).services["gateway"], 5)
    assert (open_door.host, open_door.port, open_door.api_key, open_door.admin_key, open_door.tls) == ("127.0.0.1", 5, "", "", False)
    flags = ["--gateway.api-key-file", str(tmp_path / "keys"), "--gateway.admin-api-key=root", "--gateway.host=0.0.0.0"]
    door = door_of(check_flags(split(flags)).services["gateway"], 5)
    assert (door.host, door.api_key, door.admin_key) == ("127.0.0.1", "first", "root")


def test_a_service_gets_a_folder_and_a_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({}))
    folder = str(tmp_path)
    assert with_local_model(["--port", "1"]) == ["--port", "1"]
    assert with_local_model([f"--model={folder}"]) == [f"--model={folder}", "--served-model-name", tmp_path.name]
    named = ["--model-path", folder, "--served-model-name", "n"]
    assert with_local_model(named) == named


def test_one_distinct_answer_is_the_pass_condition() -> None:
    known: set[str] = set()

    def steady(prompt: str) -> Answer:
        cached = len(prompt) if any(prompt.startswith(other[:12]) for other in known) else 0
        known.add(prompt)
        return Answer((len(prompt),), cached)

    for mode in ("single", "prefix", "radix_cache"):
        result = check(mode, steady, known.clear, trials=4, largest_batch=3, seed=1)
        assert result.passed, mode
        assert result.lines()[-1] == "  passed"
    assert (result.asked, result.cached) == (12, 8)
    forgetful = check("radix_cache", lambda prompt: Answer((1,)), lambda: None, trials=2, largest_batch=1, seed=1)
    assert not forgetful.passed, "without a cache this mode compares nothing"
    lock, calls = threading.Lock(), itertools.count()

    def moody(prompt: str) -> Answer:
        with lock:
            return Answer((next(calls) % 2,), 9)

    result = check("radix_cache", moody, lambda: None, trials=3, largest_batch=1, seed=1)
    assert not result.passed
    assert "2 distinct" in "\n".join(result.lines())
