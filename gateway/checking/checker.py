"""Has answers checked by processes of their own, which are killed when that takes too long."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import sys
from collections import OrderedDict
from typing import Any

from gateway.checking.messages import LENGTH, message_bytes

_PROGRAM = "gateway.checking.process"
_PATIENCE_S = 10.0
_PROCESSES = 2
_MOST_KNOWN = 1024
TOO_LONG = "checking took too long or too much memory"


class _Gone(Exception):
    """The process ended, or did not answer."""


class SchemaChecker:
    """`problem_of` a schema before generation, `verdict` on a text after it. Processes start on first need."""

    def __init__(self, *, patience_s: float = _PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._places = asyncio.Semaphore(_PROCESSES)
        self._idle: list[asyncio.subprocess.Process] = []
        self._known: OrderedDict[bytes, str] = OrderedDict()  # by digest: schemas may be large

    async def problem_of(self, schema: str) -> str:
        """Why answers cannot be checked against the schema, with the place of the reason; empty if they can."""
        digest = hashlib.sha256(schema.encode()).digest()
        if digest in self._known:
            self._known.move_to_end(digest)
            return self._known[digest]
        try:
            problem = str((await self._ask({"schema": schema})).get("problem", ""))
        except (_Gone, TimeoutError):
            return f"#: {TOO_LONG}"
        self._known[digest] = problem
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        return problem

    async def verdict(self, schema: str, text: str) -> dict[str, Any]:
        """`valid` true; false with `errors`; or null with the `reason` why nobody knows."""
        try:
            made = await self._ask({"schema": schema, "text": text})
        except (_Gone, TimeoutError):
            return {"valid": None, "reason": TOO_LONG}
        return made if "valid" in made else {"valid": None, "reason": made.get("problem", "")}

    async def close(self) -> None:
        """End the processes."""
        while self._idle:
            await _end(self._idle.pop())

    async def _ask(self, order: dict[str, str]) -> dict[str, Any]:
        async with asyncio.timeout(self._patience_s), self._places:
            process = self._idle.pop() if self._idle else await _start()
            try:
                answer = await _exchange(process, order)
            except BaseException:
                await asyncio.shield(_end(process))
                raise
            self._idle.append(process)
            return answer


async def _start() -> asyncio.subprocess.Process:
    pipe, nowhere = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(sys.executable, "-m", _PROGRAM, stdin=pipe, stdout=pipe, stderr=nowhere)


async def _exchange(process: asyncio.subprocess.Process, order: dict[str, str]) -> dict[str, Any]:
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(message_bytes(order))
        await process.stdin.drain()
        [length] = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
        answer: dict[str, Any] = json.loads(await process.stdout.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise _Gone from error
    return answer


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()
