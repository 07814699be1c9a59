"""`headrace up` as a supervisor of the real programs: signals, deaths, two suites side by side, refusals."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.launched import Suite, launched

pytestmark = pytest.mark.model

_LONG = {"temperature": 0, "max_new_tokens": 300, "ignore_eos": True}
_PROMPT = "Write down the story of the old mill by the river."


class Streamed:
    """A native stream read in a thread; `begun` is set once a few tokens have come."""

    def __init__(self, suite: Suite) -> None:
        self.begun = threading.Event()
        self.events: list[dict[str, Any]] = []
        self.done = False
        self._thread = threading.Thread(target=self._read, args=(suite,), daemon=True)
        self._thread.start()

    def _read(self, suite: Suite) -> None:
        body = {"text": _PROMPT, "stream": True, "sampling_params": _LONG}
        with suite.client.stream("POST", "/generate", json=body) as response:
            for line in response.iter_lines():
                if line == "data: [DONE]":
                    self.done = True
                elif line.startswith("data: "):
                    self.events.append(json.loads(line[6:]))
                    if len(self.events) > 5:
                        self.begun.set()

    def result(self) -> dict[str, Any]:
        """The last event, once the stream has ended well."""
        self._thread.join(120)
        assert self.done, self.events[-1:]
        return self.events[-1]


def undisturbed(suite: Suite, tokens: int = 300) -> str:
    return str(suite.generate(text=_PROMPT, sampling_params={**_LONG, "max_new_tokens": tokens})["text"])


def test_a_signal_to_the_whole_group_lets_a_stream_finish() -> None:
    with launched() as suite:
        stream = Streamed(suite)
        assert stream.begun.wait(60)
        os.killpg(suite.process.pid, signal.SIGINT)
        assert stream.result()["meta_info"]["completion_tokens"] == 300
        assert suite.process.wait(60) == 0


def test_a_dead_worker_is_replaced_and_its_stream_goes_on() -> None:
    with launched() as suite:
        expected = undisturbed(suite)
        stream = Streamed(suite)
        assert stream.begun.wait(60)
        os.kill(worker_pid(suite), signal.SIGKILL)
        last = stream.result()
        assert last["text"] == expected
        assert last["meta_info"]["completion_tokens"] == 300
        assert last["meta_info"]["resumes"] == 1


def test_a_killed_launcher_leaves_no_process_and_its_ports_can_be_had_again() -> None:
    with launched() as suite:
        pid = worker_pid(suite)
        suite.process.kill()
        suite.process.wait()
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and (Path(f"/proc/{pid}").exists() or listens(suite.port)):
            time.sleep(0.1)
        assert not Path(f"/proc/{pid}").exists()
        assert not listens(suite.port)
        suite.process.returncode = 0  # its end was our doing


def test_two_suites_and_two_workers_side_by_side() -> None:
    with launched("--workers", "2", "--max-total-tokens", "4k") as one, launched("--max-total-tokens", "4k") as other:
        assert one.port != other.port
        loads = one.client.get("/v1/loads").json()["loads"]
        assert [load["kv_total_tokens"] for load in loads] == [4000, 4000]
        assert undisturbed(one, 16) == undisturbed(other, 16)


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        (["--max-total-token", "5"], 2, "did you mean --max-total-tokens?"),
        (["--gateway.polcy", "x"], 2, "did you mean --gateway.policy?"),
        (["--port", "99999"], 2, "99999 is not a port"),
        (["--workers", "0"], 2, "must be at least 1"),
        (["--model", "smolm2"], 1, "did you mean smollm2-135m-instruct?"),
        (["--tokenizer.model-path", "/nowhere"], 1, "/nowhere"),
    ],
)
def test_what_cannot_work_ends_with_the_reason(flags: list[str], code: int, says: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "headrace", "up", "--port", str(port), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    assert says in done.stderr


def worker_pid(suite: Suite) -> int:
    return int(suite.client.get("/server_info").json()["workers"][0]["process_id"])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
