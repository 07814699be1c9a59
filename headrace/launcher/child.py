"""One child process: started in its own process group, its output forwarded and its last lines remembered."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from headrace.programs import python_command, python_environment

Say = Callable[[str, str], None]  # (who, line)

_REMEMBERED_LINES = 25
_LONGEST_LINE = 64 * 1024
_PIPE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What to run. `stage` orders the stop: lower stages leave first."""

    name: str
    module: str
    arguments: tuple[str, ...]
    stage: int
    environment: tuple[tuple[str, str], ...] = ()


class Child:
    """Runs `python -m module arguments --parent-pipe FD`; the pipe's other end is this process."""

    def __init__(self, spec: ChildSpec, pipe: int, say: Say) -> None:
        self.spec = spec
        self.last_lines: deque[str] = deque(maxlen=_REMEMBERED_LINES)
        self.started_at = 0.0
        self._pipe, self._say = pipe, say
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Started and not yet ended."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start it (again)."""
        self.started_at = time.monotonic()
        self._process = await asyncio.create_subprocess_exec(
            *python_command(self.spec.module, (*self.spec.arguments, "--parent-pipe", str(self._pipe))),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=python_environment(PYTHONUNBUFFERED="1", **dict(self.spec.environment)),
            pass_fds=(self._pipe,),
            process_group=0,
            limit=_LONGEST_LINE,
        )
        self._reader = asyncio.create_task(self._forward(self._process))

    async def wait(self) -> int:
        """Exit code, once the process has ended and its output is read; negative for a signal."""
        assert self._process is not None
        code = await self._process.wait()
        if self._reader is not None:
            with contextlib.suppress(asyncio.TimeoutError):  # a grandchild may hold the pipe open
                await asyncio.wait_for(asyncio.shield(self._reader), 1.0)
        return code

    def signal(self, number: int) -> None:
        """Send a signal to the process, or for SIGKILL to its whole group."""
        if self._process is None or self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self._process.pid, number)
            else:
                self._process.send_signal(number)

    async def _forward(self, process: asyncio.subprocess.Process) -> None:
        stream = process.stdout
        assert stream is not None
        _widen(process)
        while True:
            try:
                raw = await stream.readline()
            except ValueError:  # a line over the limit: its rest follows as further lines
                continue
            if not raw:
                return
            line = raw.decode(errors="replace").rstrip()
            self.last_lines.append(line)
            self._say(self.spec.name, line)


def _widen(process: asyncio.subprocess.Process) -> None:
    """Room in the pipe for a launcher that is stopped for a while, so that no child blocks on a log line."""
    transport = process._transport.get_pipe_transport(1)  # type: ignore[attr-defined]
    pipe = transport.get_extra_info("pipe") if transport is not None else None
    if pipe is not None and hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
