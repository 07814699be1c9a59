"""The whole suite as a user starts it: `headrace up` on free ports with the embedded model."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

MODEL = "smollm2-135m-instruct"
_READY = re.compile(r"http://127\.0\.0\.1:(\d+)")
_IDLE_S = 20.0


@dataclass
class Suite:
    """A running suite: its launcher, its doors, and a client for the REST one."""

    process: subprocess.Popen[bytes]
    port: int
    client: httpx.Client

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def grpc_target(self) -> str:
        return f"127.0.0.1:{self.port + 1}"

    def generate(self, **body: Any) -> dict[str, Any]:
        """One native reply; the status must be 200."""
        reply = self.client.post("/generate", json=body)
        assert reply.status_code == 200, reply.text
        found: dict[str, Any] = reply.json()
        return found

    def loads(self) -> dict[str, Any]:
        """The one worker's load as `/v1/loads` tells it."""
        found: dict[str, Any] = self.client.get("/v1/loads").json()["loads"][0]
        return found

    def wait_idle(self) -> dict[str, Any]:
        """Until nothing runs or waits; returns that load."""
        end = time.monotonic() + _IDLE_S
        while time.monotonic() < end:
            load = self.loads()
            if load["running"] == 0 and load["waiting"] == 0:
                return load
            time.sleep(0.05)
        raise AssertionError(f"still busy after {_IDLE_S} s: {load}")


def _free_block() -> int:
    """A port whose neighbour is free too."""
    while True:
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            try:
                two.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


@contextmanager
def launched(*flags: str, model: str = MODEL) -> Iterator[Suite]:
    """`headrace up` with these flags until the block ends; its end must be clean."""
    port = _free_block()
    command = [sys.executable, "-m", "headrace", "up", "--model", model, "--port", str(port), *flags]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            _wait_ready(process, log, port)
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=600) as client:
                yield Suite(process, port, client)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                code = process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise
            finally:
                sys.stderr.write(log.read_text(errors="replace")[-8000:])
        assert code == 0


def _wait_ready(process: subprocess.Popen[bytes], log: Path, port: int) -> None:
    """The launcher has printed the address and the gateway answers."""
    end = time.monotonic() + 300
    while time.monotonic() < end:
        text = log.read_text(errors="replace")
        if process.poll() is not None:
            raise AssertionError(f"the launcher ended with {process.returncode}:\n{text}")
        if any(int(found) == port for found in _READY.findall(text)) and "curl" in text:
            return
        time.sleep(0.1)
    raise AssertionError(f"not ready:\n{log.read_text(errors='replace')}")
