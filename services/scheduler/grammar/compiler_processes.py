"""Compilers in processes of their own, which are killed when a grammar takes too long."""

from __future__ import annotations

import contextlib
import json
import queue
import select
import subprocess
import sys
import time
from typing import IO, Any

from services.scheduler.grammar.xgrammar_process import message_bytes

_PROGRAM = "services.scheduler.grammar.xgrammar_process"
_LENGTH_BYTES = 4
_START_LIMIT_S = 60.0
_LARGEST_ANSWER = 128 << 20
PATIENCE = 6
"""The limit is processor time; on a busy machine a compiler, which has the lowest priority, gets this many times as long."""


class CompilerGone(Exception):
    """The compiler process ended: over its limit of time or memory, or by a fault of the library."""


class CompilerProcesses:
    """As many as threads ask at once; each is started on first need and used again. Safe to use from several threads."""

    def __init__(self, vocabulary: dict[str, Any]) -> None:
        self._vocabulary = message_bytes(vocabulary)
        self._idle: queue.LifoQueue[_Process] = queue.LifoQueue()

    def compile(self, kind: str, text: str, limit_s: float) -> dict[str, str]:
        """The answer: `grammar`, `costly` or `error`. `limit_s` is processor time. Raises CompilerGone."""
        try:
            process = self._idle.get_nowait()
        except queue.Empty:
            process = _Process(self._vocabulary)
        try:
            answer = process.ask({"kind": kind, "text": text, "limit_s": limit_s}, limit_s)
        except BaseException:
            process.kill()
            raise
        self._idle.put(process)
        return answer

    def close(self) -> None:
        """End all idle processes."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._idle.get_nowait().kill()


class _Process:
    def __init__(self, vocabulary: bytes) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
        self._first = vocabulary

    def ask(self, order: dict[str, Any], limit_s: float) -> dict[str, str]:
        first, self._first = self._first, b""
        allowance = PATIENCE * limit_s + (_START_LIMIT_S if first else 0.0)
        try:
            self._stdin.write(first + message_bytes(order))
            deadline = time.monotonic() + allowance
            length = int.from_bytes(self._read(_LENGTH_BYTES, deadline), "little")
            if length > _LARGEST_ANSWER:
                raise CompilerGone("the compiled grammar is too large")
            answer: dict[str, str] = json.loads(self._read(length, deadline))
            return answer
        except BrokenPipeError as error:
            raise CompilerGone("the compiler ended") from error

    def _read(self, count: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < count:
            ready, _, _ = select.select([self._stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise CompilerGone("compiling took too long")
            part = self._stdout.read(count - len(data))
            if not part:
                raise CompilerGone("compiling took too long or too much memory")
            data += part
        return bytes(data)

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def kill(self) -> None:
        self._process.kill()
        with self._process:
            pass
