"""Flags, files and help of a config class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from services.common.config import ConfigError, at_least, count, load, load_or_exit, option


@dataclass(frozen=True)
class Sample:
    """A config with one option of each kind."""

    max_total_tokens: int | None = option(None, "pool size", group="Memory", unit="tokens", parse=count)
    ratio: float = option(0.5, "a share", check=at_least(0))
    policy: str = option("fcfs", "order", choices=("fcfs", "lpm"))
    names: tuple[str, ...] = option((), "several")
    cache: bool = option(True, "keep a cache")
    dry: bool = option(False, "do nothing")


def test_defaults_and_sources() -> None:
    config, sources = load(Sample, ["--ratio", "0.25"], prog="x")
    assert config == Sample(ratio=0.25)
    assert sources.of["ratio"] == "user"
    assert sources.of["policy"] == "default"


@pytest.mark.parametrize(("text", "value"), [("4096", 4096), ("4k", 4000), ("1M", 1_000_000), ("1.5k", 1500)])
def test_counts(text: str, value: int) -> None:
    assert load(Sample, ["--max-total-tokens", text], prog="x")[0].max_total_tokens == value


@pytest.mark.parametrize(
    ("argv", "cache", "dry"),
    [([], True, False), (["--no-cache", "--dry"], False, True), (["--cache", "false", "--dry=false"], False, False)],
)
def test_booleans(argv: list[str], cache: bool, dry: bool) -> None:
    config, _ = load(Sample, argv, prog="x")
    assert (config.cache, config.dry) == (cache, dry)


def test_unknown_flag_names_the_nearest_and_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        load(Sample, ["--max-total-token", "4"], prog="x")
    assert stop.value.code == 2
    assert "did you mean --max-total-tokens?" in capsys.readouterr().err


def test_file_is_weaker_than_flags(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("ratio: 0.1\npolicy: lpm\nnames: [a, b]\ncache: false\n")
    config, sources = load(Sample, ["--config", str(path), "--ratio", "0.9"], prog="x")
    assert config == Sample(ratio=0.9, policy="lpm", names=("a", "b"), cache=False)
    assert sources.of["policy"] == "config"


@pytest.mark.parametrize(
    ("content", "message"),
    [("polici: lpm", "did you mean 'policy'"), ("ratio: much", "ratio"), ("- a", "mapping"), ("policy: sjf", "not one of")],
)
def test_bad_files_name_the_setting(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        load(Sample, ["--config", str(path)], prog="x")


@pytest.mark.parametrize("argv", [["--ratio", "-1"], ["--policy", "sjf"]])
def test_bad_values_exit_2_and_name_the_flag(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        load_or_exit(Sample, argv, prog="x")
    assert stop.value.code == 2
    assert argv[0] in capsys.readouterr().err


def test_help_is_grouped_with_defaults_and_units(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load(Sample, ["--help"], prog="x")
    text = capsys.readouterr().out
    assert "Memory:" in text
    assert "pool size [tokens] (default: none)" in text
    assert "keep a cache (default: true)" in text
