"""A comparison that is ended half-way still tells what it has."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import cpu_vs_peers
from benchmarks.peers.parts import Parts
from benchmarks.targets import EIGHT, INT8, VLLM
from headrace.models.store import ModelStore


@pytest.fixture
def _signals_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("_signals_as_before")
def test_what_was_measured_is_printed_and_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(parts: Parts, loads: object) -> None:
        for name, value in ((INT8, 220.0), (VLLM, 100.0)):
            parts._session.values["headrace-bench"][(EIGHT, "tok/s", name)][0] = value
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(cpu_vs_peers, "install", lambda _: None)
    monkeypatch.setattr(cpu_vs_peers, "floors", lambda _: {})
    monkeypatch.setattr(ModelStore, "ensure", lambda *_: tmp_path)
    monkeypatch.setattr(Parts, "beside_peers", interrupted)
    files = ["--json", str(tmp_path / "values.json"), "--markdown", str(tmp_path / "page.md"), "--logs", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        cpu_vs_peers.main(["--peers", str(tmp_path), "--seed", "7", *files])
    assert ended.value.code == 143
    assert "2.20" in capsys.readouterr().out
    assert json.loads((tmp_path / "values.json").read_text())["headrace-bench"][f"{EIGHT}/tok/s/{INT8}"] == {"0": 220.0}
    page = (tmp_path / "page.md").read_text()
    assert "--seed 7" in page
    assert "| 8 users | tok/s | headrace int8 | 220 | vLLM | 100 |" in page
