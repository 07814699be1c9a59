"""Start one of our programs on a free port, as a user would, and stop it with a signal."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_LISTENING = re.compile(r"listening address=\S+:(\d+)")


@dataclass
class Program:
    """A running program and the port of its gRPC server."""

    process: subprocess.Popen[str]
    port: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@contextmanager
def running(module: str, *arguments: str) -> Iterator[Program]:
    """`python -m module arguments` until the block ends."""
    command = [sys.executable, "-m", module, "--port", "0", "--metrics-port", "-2", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield Program(process, _port(process))
    finally:
        process.kill()
        process.communicate()


def _port(process: subprocess.Popen[str]) -> int:
    assert process.stderr is not None
    log = ""
    for line in process.stderr:
        log += line
        found = _LISTENING.search(line)
        if found:
            return int(found[1])
    raise AssertionError(f"the program ended before it listened:\n{log}")


def run_to_end(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program that is expected to end by itself, within seconds."""
    command = [sys.executable, "-m", module, "--port", "0", "--metrics-port", "-2", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
