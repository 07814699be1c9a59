"""A signal while the kernels are being compiled ends the worker there and then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.programs import running
from tests.integration.test_scheduler_model import _CONFIG


@pytest.mark.parametrize("form", ["thread", "process"])
def test_a_worker_does_not_wait_for_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(_CONFIG))
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))
    flags = ("--model-path", str(tmp_path), "--load-format", "dummy", "--max-total-tokens", "1k", "--engine-client", form)
    with running("services.scheduler", *flags) as program:
        assert program.process.stderr is not None
        for line in program.process.stderr:
            if "building kernels: 1/" in line:
                break
        assert program.stop() == 0
        rest = program.process.stderr.read()  # ends when the engine's process, which has it too, is gone
    assert "building kernels: done" not in rest
    assert not list((tmp_path / "cache" / "kernels").glob("*/headrace_cpu.so"))
