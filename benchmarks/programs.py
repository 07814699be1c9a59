"""Programs that a benchmark starts and stops."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def program(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A child process for the length of the block; what it prints goes to `log`."""
    with log.open("wb") as out:
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def wait_http(port: int, path: str, child: subprocess.Popen[bytes], log: Path, seconds: float = 120.0) -> None:
    """Until the path answers 200. Raises RuntimeError with the program's output."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and child.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"{child.args!r} is not ready:\n{log.read_text()[-2000:]}")


def wait_grpc(port: int) -> None:
    """Until something listens."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        grpc.channel_ready_future(channel).result(120)
