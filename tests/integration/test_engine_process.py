"""`--engine-client process`: the same answers, and every way in which one of the two processes can end."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from protos.scheduler.v1 import cache_events_pb2 as events_pb
from protos.scheduler.v1 import scheduler_pb2 as pb
from tests.integration.programs import run_to_end
from tests.integration.worker_client import Worker, scripted, submit

_ENDLESS: dict[str, Any] = {"playbacks": [{"output": [7, 8, 9], "repeat": True}]}
_PROCESS = ("--engine-client", "process")


def _engine(found: Worker) -> psutil.Process:
    (child,) = [child for child in psutil.Process(found.program.process.pid).children() if "engine_main" in " ".join(child.cmdline())]
    return child


async def _answers(tmp_path: Path, *flags: str) -> list[list[int]]:
    """Drawn and greedy answers, one cancelled on the way, with chunks and evictions."""
    script = {"step_ms": 1}
    async with (
        scripted(tmp_path, script, "--max-total-tokens", "600", "--chunked-prefill-size", "64", *flags) as found,
        found.session() as session,
    ):
        asked = [submit(i, ids=[11 + i] * (20 + 9 * i), max_new=30, sampling=pb.Sampling(temperature=i % 2)) for i in range(12)]
        await session.send(submit=[*asked, submit(99, max_new=4000)])
        await session.until_tokens(99, 3)
        await session.send(cancel=[pb.Cancel(handle=99, cause=pb.CANCEL_CAUSE_ABORT_REQUEST)])
        await session.until_final(99, *range(12))
        assert session.rows[99].ended.reason == pb.FINISH_REASON_ABORT
        return [session.rows[i].ids for i in range(12)]


async def test_both_forms_give_the_same_answers(tmp_path: Path) -> None:
    assert await _answers(tmp_path, *_PROCESS) == await _answers(tmp_path)


async def test_load_decisions_snapshot_and_flush(tmp_path: Path) -> None:
    async with scripted(tmp_path, _ENDLESS, *_PROCESS) as found, found.session() as session:
        await session.send(submit=[submit(1, ids=[5] * 64, max_new=4)])
        await session.until_final(1)
        await found.until_idle()
        info = await found.scheduler.GetServerInfo(pb.GetServerInfoRequest(decisions=10))
        assert '"kind": "admit"' in info.decisions_json
        assert "max_total_num_tokens" in info.report
        first = await anext(aiter(found.cache.Subscribe(events_pb.SubscribeRequest())))
        assert first.ByteSize() > 0
        flushed = await found.admin.FlushCache(pb.FlushCacheRequest())
        assert flushed.removed_tokens == 67
        assert (await found.load()).kv_evictable_tokens == 0


async def test_a_drain_finishes_what_runs_and_leaves_no_process(tmp_path: Path) -> None:
    async with scripted(tmp_path, _ENDLESS | {"step_ms": 5}, *_PROCESS) as found, found.session() as session:
        engine = _engine(found)
        await session.send(submit=[submit(1, max_new=60)])
        await session.until_tokens(1, 2)
        found.program.process.terminate()
        await session.until_final(1)
        assert len(session.rows[1].ids) == 60
    assert await asyncio.to_thread(engine.wait, 20) is not None or not engine.is_running()


@pytest.mark.parametrize("how", ["crash", "kill"])
async def test_the_end_of_the_engine_is_the_end_of_the_worker(tmp_path: Path, how: str) -> None:
    script = _ENDLESS | {"step_ms": 5} | ({"failures": [{"launch": 9, "kind": "crash"}]} if how == "crash" else {})
    async with scripted(tmp_path, script, *_PROCESS) as found, found.session() as session:
        await session.send(submit=[submit(1, max_new=4000)])
        await session.until_tokens(1, 2)
        if how == "kill":
            _engine(found).kill()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            while await session.read() is not None:
                pass
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert await asyncio.to_thread(found.program.process.wait, 20) == 70


async def test_the_end_of_the_worker_is_the_end_of_the_engine(tmp_path: Path) -> None:
    async with scripted(tmp_path, _ENDLESS, *_PROCESS) as found:
        engine = _engine(found)
        os.kill(found.program.process.pid, signal.SIGKILL)
        await asyncio.to_thread(psutil.wait_procs, [engine], 20)
        assert not engine.is_running()


async def test_a_stuck_step_ends_both_with_the_watchdogs_code(tmp_path: Path) -> None:
    script = _ENDLESS | {"failures": [{"launch": 3, "kind": "hang", "seconds": 600}]}
    flags = ("--watchdog-timeout", "3", "--soft-watchdog-timeout", "1")
    async with scripted(tmp_path, script, *_PROCESS, *flags) as found, found.session() as session:
        engine = _engine(found)
        await session.send(submit=[submit(1, max_new=100)])
        assert await asyncio.to_thread(found.program.process.wait, 60) == 86
        await asyncio.to_thread(psutil.wait_procs, [engine], 20)
        assert not engine.is_running()
        assert found.program.process.stderr is not None
        assert "_fail" in found.program.process.stderr.read()  # the step that hangs, in the engine's stacks


def test_a_model_that_cannot_be_loaded_is_told_as_ever() -> None:
    ended = run_to_end("services.scheduler", "--model-path", "/nowhere", *_PROCESS)
    assert ended.returncode == 2
    assert "--model-path: /nowhere: no such file" in ended.stderr
