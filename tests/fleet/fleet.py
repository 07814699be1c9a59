"""A whole fleet of real programs on loopback that can be hurt: killed, stopped, started again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.ports import free_port


@dataclass
class Member:
    """One program. It keeps its port through all its lives."""

    name: str
    module: str
    flags: Sequence[str]
    folder: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    lives: int = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What it has printed in all its lives."""
        return (self.folder / f"{self.name}.log").read_text()

    def start(self) -> None:
        self.lives += 1
        command = [sys.executable, "-m", self.module, "--port", str(self.port), "--metrics-port", "-2", *self.flags]
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def kill(self) -> None:
        """No goodbye."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    async def restart_gently(self) -> int:
        """SIGTERM, wait for the end, start again. Returns the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(self.process.wait, 60)
        self.start()
        return code

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()


def flags(settings: Mapping[str, Any]) -> list[str]:
    """Settings as command-line flags; None is left out."""
    found: list[str] = []
    for name, value in settings.items():
        if value is not None:
            found += [f"--{name.replace('_', '-')}", *(map(str, value) if isinstance(value, list | tuple) else [str(value)])]
    return found


class Fleet:
    """Tokenizer, detokenizer, workers and one gateway. `settings`: flags by kind, as tests.helm.scripted.write_model returns."""

    def __init__(self, folder: Path, settings: Mapping[str, Mapping[str, Any]], *, workers: int = 3) -> None:
        def member(name: str, kind: str, module: str, **more: Any) -> Member:
            return Member(name, module, flags({**settings.get(kind, {}), **more}), folder)

        self.tokenizer = member("tokenizer", "tokenizer", "services.tokenizer")
        self.detokenizer = member("detokenizer", "detokenizer", "services.detokenizer")
        self.workers = [member(f"worker{i}", "worker", "services.scheduler") for i in range(workers)]
        self.gateway = member(
            "gateway",
            "gateway",
            "gateway",
            grpc_port=0,
            tokenizer=self.tokenizer.address,
            detokenizer=self.detokenizer.address,
            workers=[worker.address for worker in self.workers],
        )

    @property
    def members(self) -> list[Member]:
        return [self.tokenizer, self.detokenizer, *self.workers, self.gateway]

    @property
    def url(self) -> str:
        return f"http://{self.gateway.address}"

    @contextlib.asynccontextmanager
    async def running(self, seconds: float = 90.0) -> AsyncIterator[Fleet]:
        """All members started, all workers ready."""
        try:
            for member in self.members:
                member.start()
            await self.until_ready(seconds)
            yield self
        finally:
            for member in reversed(self.members):
                member.stop()

    async def until_ready(self, seconds: float = 60.0) -> None:
        """Returns when the gateway is ready and so are all workers."""
        until = time.monotonic() + seconds
        async with aiohttp.ClientSession() as session:
            while time.monotonic() < until:
                for member in self.members:
                    assert member.process is None or member.process.poll() is None, f"{member.name} has ended:\n{member.log[-2000:]}"
                with contextlib.suppress(aiohttp.ClientError, OSError):
                    states = [worker["state"] for worker in await self.shown(session)]
                    async with session.get(f"{self.url}/ready") as ready:
                        if ready.status == 200 and states == ["ready"] * len(self.workers):
                            return
                await asyncio.sleep(0.1)
        raise AssertionError("the fleet is not ready:\n" + self.gateway.log[-3000:])

    async def shown(self, session: aiohttp.ClientSession) -> list[dict[str, Any]]:
        """The workers as the gateway shows them."""
        async with session.get(f"{self.url}/workers") as answer:
            assert answer.status == 200, await answer.text()
            found: list[dict[str, Any]] = (await answer.json())["workers"]
            return found

    def member_at(self, address: str) -> Member:
        return next(member for member in self.members if member.address == address)
