"""`--kv-canary` on the running worker: a slot corrupted by the script is reported, or ends the worker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from tests.integration.worker_client import scripted, submit

_SCRIPT = {
    "playbacks": [{"output": [7, 8, 9], "repeat": True}],
    "failures": [{"launch": 4, "kind": "corrupt", "slot": 2}],
}
_EVERY_TURN = ("--kv-canary-sweep-interval", "0")


async def test_log_mode_serves_on(tmp_path: Path) -> None:
    async with scripted(tmp_path, _SCRIPT, "--kv-canary", "log", *_EVERY_TURN) as found, found.session() as session:
        await session.send(submit=[submit(1, max_new=20)])
        await session.until_final(1)
        assert len(session.rows[1].ids) == 20
        assert found.program.process.stderr is not None
        found.program.process.terminate()
        said = await asyncio.to_thread(found.program.process.stderr.read)
    assert "slot 2 no longer holds what was written into it; it is used by request r1 (position 1)" in said
    assert said.count("KV canary") == 1


async def test_raise_mode_ends_the_worker(tmp_path: Path) -> None:
    async with scripted(tmp_path, _SCRIPT, "--kv-canary", "raise", *_EVERY_TURN) as found, found.session() as session:
        await session.send(submit=[submit(1, max_new=1000)])
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            while await session.read() is not None:
                pass
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert await asyncio.to_thread(found.program.process.wait, 20) == 70


async def test_without_the_flag_nobody_looks(tmp_path: Path) -> None:
    async with scripted(tmp_path, _SCRIPT) as found, found.session() as session:
        await session.send(submit=[submit(1, max_new=20)])
        await session.until_final(1)
        found.program.process.terminate()
        assert found.program.process.stderr is not None
        assert "KV canary" not in await asyncio.to_thread(found.program.process.stderr.read)
