"""The worker program over gRPC, on the scripted engine: what its contract promises, under load, faults and drain."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import grpc
import pytest

from protos.scheduler.v1 import scheduler_pb2 as pb
from services.common.grpc_errors import from_rpc_error
from tests.integration.programs import run_to_end
from tests.integration.worker_client import scripted, submit

_ENDLESS = {"playbacks": [{"output": [7, 8, 9], "repeat": True}]}


async def _generate(found: Any, request: pb.Submit) -> tuple[list[int], pb.Final]:
    ids: list[int] = []
    finals: list[pb.Final] = []
    async for response in found.scheduler.Generate(pb.GenerateRequest(submit=request)):
        ids.extend(response.frame.step.token_ids)
        finals.extend(response.frame.final)
    (final,) = finals
    return ids, final


async def test_a_single_call_returns_the_tokens_and_one_final(tmp_path: Path) -> None:
    script = {"playbacks": [{"prompt_prefix": [11], "output": [5, 6, 7]}]}
    async with scripted(tmp_path, script) as found:
        ids, final = await _generate(found, submit(max_new=8))
        assert ids == [5, 6, 7, 2]
        assert (final.reason, final.token_id, final.end_position) == (pb.FINISH_REASON_STOP, 2, 4)
        assert (final.usage.prompt_tokens, final.usage.completion_tokens) == (3, 4)


async def test_a_pool_of_pages_holds_what_was_asked_for(tmp_path: Path) -> None:
    async with scripted(tmp_path, None, "--max-total-tokens", "4096", "--page-size", "16") as found:
        assert (await found.load()).kv_total_tokens == 4096
        settings = {one.name: one.value for one in (await found.scheduler.GetServerInfo(pb.GetServerInfoRequest())).settings}
        assert settings["max_total_num_tokens"] == "4096"


async def test_what_a_session_used_last_outlives_strangers(tmp_path: Path) -> None:
    async with scripted(tmp_path, None, "--max-total-tokens", "500", "--enable-session-radix-cache") as found:
        asked = [list(range(first, first + 100)) for first in range(100, 1100, 100)]
        for number, ids in enumerate(asked):
            await _generate(found, submit(ids=ids, max_new=1, session="" if number else "chat"))
        cached = [(await _generate(found, submit(ids=ids, max_new=1)))[1].usage.cached.device for ids in asked[:2]]
        assert cached == [99, 0]


async def test_many_requests_share_a_session_in_order_and_alone_give_the_same(tmp_path: Path) -> None:
    async with scripted(tmp_path) as found, found.session() as session:
        requests = [submit(handle, ids=[handle % 5 + 3] * (1 + handle % 40), max_new=1 + handle % 23) for handle in range(60)]
        await session.send(submit=requests[:30])
        await session.send(submit=requests[30:])
        await session.until_final(*range(60))
        for handle in (3, 17, 42):
            ids, _ = await _generate(found, requests[handle])
            assert session.rows[handle].ids == ids
        load = await found.load()
        assert (load.running, load.waiting, load.kv_used_tokens) == (0, 0, 0)


async def test_choices_answer_on_consecutive_handles_and_a_resume_goes_on_where_it_stopped(tmp_path: Path) -> None:
    async with scripted(tmp_path) as found, found.session() as session:
        await session.send(submit=[submit(10, choices=[pb.Choice(index=i, seed=i) for i in range(3)], max_new=12)])
        await session.until_final(10, 11, 12)
        whole = session.rows[10].ids
        await session.send(submit=[submit(20, choices=[pb.Choice(seed=0, prior_output_ids=whole[:5])], max_new=12)])
        await session.until_final(20)
        assert session.rows[20].first == 5
        assert session.rows[20].ids == whole[5:]


_WRONG: list[tuple[str, dict[str, Any]]] = [
    ("prompt", {"prompt": pb.Prompt()}),
    ("prompt.token_ids", {"prompt": pb.Prompt(token_ids=[3, 32000])}),
    ("prompt", {"prompt": pb.Prompt(token_ids=[3], total_tokens=8192)}),
    ("sampling.temperature", {"sampling": pb.Sampling(temperature=-1)}),
    ("sampling.temperature", {"sampling": pb.Sampling(temperature=float("nan"))}),
    ("sampling.top_p", {"sampling": pb.Sampling(top_p=0)}),
    ("sampling.top_p", {"sampling": pb.Sampling(top_p=1.5)}),
    ("sampling.top_k", {"sampling": pb.Sampling(top_k=-2)}),
    ("sampling.min_p", {"sampling": pb.Sampling(min_p=2)}),
    ("sampling.frequency_penalty", {"sampling": pb.Sampling(frequency_penalty=100)}),
    ("sampling.repetition_penalty", {"sampling": pb.Sampling(repetition_penalty=0)}),
    ("sampling.logit_bias", {"sampling": pb.Sampling(logit_bias=[pb.LogitBias(token_id=99999999, bias=5)])}),
    ("sampling.logit_bias", {"sampling": pb.Sampling(logit_bias=[pb.LogitBias(token_id=1, bias=500)])}),
    ("stops.token_ids", {"stops": pb.Stops(max_new_tokens=4, token_ids=[32000])}),
    ("stops.min_new_tokens", {"stops": pb.Stops(max_new_tokens=4, min_new_tokens=5)}),
    ("stops.strings", {"stops": pb.Stops(max_new_tokens=4, strings=["x"])}),
    ("output.top_logprobs", {"output": pb.Output(top_logprobs=5000)}),
    ("output.prompt_logprobs_from", {"output": pb.Output(prompt_logprobs_from=3)}),
    ("choices", {"choices": []}),
    ("adapter", {"adapter": {"name": "a"}}),
    ("model", {"model": "nope"}),
]


async def test_wrong_requests_name_their_field_and_hurt_nobody(shared_worker: Any) -> None:
    for field, wrong in _WRONG:
        async with shared_worker.session() as session:
            await session.send(submit=[submit(1, max_new=20), submit(5, **wrong), submit(9)])
            await session.until_final(1, 5, 9)
            error = session.rows[5].ended.error
            assert session.rows[5].said == ["final"]
            assert error.field == field
            assert error.code in (3, 5)
            assert session.rows[1].ended.reason == session.rows[9].ended.reason == pb.FINISH_REASON_LENGTH
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _generate(shared_worker, submit(0, **wrong))
        assert from_rpc_error(caught.value).field == field


@pytest.fixture
async def shared_worker(tmp_path: Path) -> Any:
    async with scripted(tmp_path, _ENDLESS) as found:
        yield found


async def test_a_long_prompt_arrives_in_parts(shared_worker: Any) -> None:
    ids = [3 + i % 900 for i in range(5000)]
    async with shared_worker.session() as session:
        first = submit(1)
        first.prompt.CopyFrom(pb.Prompt(token_ids=ids[:2000], total_tokens=5000))
        await session.send(submit=[first, submit(50)])
        await session.send(prompt=[pb.PromptPart(handle_base=1, offset=2000, token_ids=ids[2000:4000])])
        await session.until_final(50)
        assert 1 not in session.rows
        await session.send(prompt=[pb.PromptPart(handle_base=1, offset=4000, token_ids=ids[4000:])])
        await session.until_final(1)
        assert session.rows[1].ended.usage.prompt_tokens == 5000

        for handle, offset in ((2, 1999), (3, 2001)):
            broken = submit(handle)
            broken.prompt.CopyFrom(first.prompt)
            await session.send(submit=[broken], prompt=[pb.PromptPart(handle_base=handle, offset=offset, token_ids=[1])])
            await session.until_final(handle)
            assert session.rows[handle].ended.error.field == "prompt.offset"


async def test_cancel_gives_exactly_one_final_whenever_it_comes(shared_worker: Any) -> None:
    async with shared_worker.session() as session:
        partial = submit(2)
        partial.prompt.total_tokens = 100
        await session.send(submit=[submit(1, max_new=4000), partial])
        await session.until_tokens(1, 3)
        cancels = [pb.Cancel(handle=h, cause=pb.CANCEL_CAUSE_ABORT_REQUEST) for h in (1, 1, 2, 77)]
        await session.send(cancel=cancels)
        await session.until_final(1, 2)
        assert session.rows[1].ended.reason == session.rows[2].ended.reason == pb.FINISH_REASON_ABORT
        await session.send(submit=[submit(3)], cancel=[pb.Cancel(handle=1)])
        await session.until_final(3)
        assert session.rows[1].said.count("final") == 1


async def test_abort_by_request_id_and_of_everything(shared_worker: Any) -> None:
    async with shared_worker.session() as session:
        await session.send(submit=[submit(1, max_new=4000), submit(2, max_new=4000, request_id="r1-longer"), submit(3, max_new=4000)])
        await session.until_tokens(1, 1)
        assert (await shared_worker.scheduler.Abort(pb.AbortRequest(request_id="r1"))).aborted == 1
        await session.until_final(1)
        assert session.rows[2].final is None
        assert (await shared_worker.scheduler.Abort(pb.AbortRequest(request_id="unknown"))).aborted == 0
        assert (await shared_worker.scheduler.Abort(pb.AbortRequest())).aborted == 0
        assert (await shared_worker.scheduler.Abort(pb.AbortRequest(all=True))).aborted == 2
        await session.until_final(2, 3)


async def test_the_end_of_a_session_ends_its_requests(shared_worker: Any) -> None:
    async with shared_worker.session() as session:
        await session.send(submit=[submit(handle, max_new=8000) for handle in range(8)])
        await session.until_tokens(7, 1)
    await shared_worker.until_idle()
    ids, _ = await _generate(shared_worker, submit(ids=[11, 12, 13], max_new=3))
    assert ids == [7, 8, 9]


async def test_a_protocol_error_ends_the_session_with_its_reason(shared_worker: Any) -> None:
    async with shared_worker.session() as session:
        await session.send(submit=[submit(1, max_new=8000), submit(1)])
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            while await session.read() is not None:
                pass
        assert from_rpc_error(caught.value).field == "submit.handle_base"
    call = shared_worker.scheduler.Session()
    await call.write(pb.ToWorker(hello=pb.Hello(protocol=99)))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert from_rpc_error(caught.value).field == "hello.protocol"


async def test_a_slow_reader_gets_everything_merged_in_bounded_frames(tmp_path: Path) -> None:
    async with scripted(tmp_path, _ENDLESS) as found, found.session() as session:
        wanted = pb.Output(top_logprobs=200)
        await session.send(submit=[submit(handle, max_new=1500, output=wanted) for handle in range(4)])
        await session.until_tokens(0, 1)
        await found.until_idle()  # though nobody reads
        await session.until_final(0, 1, 2, 3)
        assert all(len(session.rows[handle].ids) == 1500 for handle in range(4))
        assert session.frames < 1500


async def test_prompt_logprobs_come_in_parts_and_are_complete(shared_worker: Any) -> None:
    async with shared_worker.session() as session:
        prompt = [3 + i % 50 for i in range(3000)]
        await session.send(submit=[submit(1, ids=prompt, output=pb.Output(top_logprobs=60, prompt_logprobs_from=0))])
        await session.until_final(1)
        assert len(session.rows[1].prompt_logprobs) == 2999


async def test_with_a_slow_step_the_worker_still_speaks(tmp_path: Path) -> None:
    script = _ENDLESS | {"failures": [{"launch": 4, "kind": "hang", "seconds": 1.5}]}
    async with scripted(tmp_path, script) as found, found.session() as session:
        await session.send(submit=[submit(1, max_new=6)])
        await session.until_final(1)
        assert max(session.heartbeats) > 700
        growing = session.heartbeats[: session.heartbeats.index(max(session.heartbeats)) + 1]
        assert len(growing) >= 3
        assert growing == sorted(growing)


async def test_a_stuck_step_ends_the_process_with_its_own_code(tmp_path: Path) -> None:
    script = _ENDLESS | {"failures": [{"launch": 3, "kind": "hang", "seconds": 60}]}
    async with (
        scripted(tmp_path, script, "--watchdog-timeout", "0.5", "--soft-watchdog-timeout", "0.2") as found,
        found.session() as session,
    ):
        await session.send(submit=[submit(1)])
        code = await asyncio.to_thread(found.program.process.wait, 20)
        assert code == 86
        assert found.program.process.stderr is not None
        log = found.program.process.stderr.read()
        assert "a step takes long" in log
        assert "engine" in log


async def test_a_worker_that_was_stopped_in_a_step_goes_on(tmp_path: Path) -> None:
    """As on a laptop that slept: the step's age on the clock is above the limit when it wakes, what it computed for is not."""
    script = _ENDLESS | {"failures": [{"launch": 3, "kind": "hang", "seconds": 3.0}]}
    async with scripted(tmp_path, script, "--watchdog-timeout", "2") as found, found.session() as session:
        await session.send(submit=[submit(1, max_new=8)])
        await asyncio.sleep(0.3)
        found.program.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(2.3)
        found.program.process.send_signal(signal.SIGCONT)
        await session.until_final(1)
        assert session.rows[1].ids == [7, 8, 9, 7, 8, 9, 7, 8]


async def test_an_engine_crash_ends_sessions_and_the_process(tmp_path: Path) -> None:
    script = _ENDLESS | {"failures": [{"launch": 3, "kind": "crash"}]}
    async with scripted(tmp_path, script) as found, found.session() as session:
        await session.send(submit=[submit(1)])
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            while await session.read() is not None:
                pass
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert await asyncio.to_thread(found.program.process.wait, 20) == 70


async def test_memory_exhaustion_is_survived(tmp_path: Path) -> None:
    script = _ENDLESS | {"oom_above_tokens": 64}
    async with scripted(tmp_path, script, "--chunked-prefill-size", "256") as found, found.session() as session:
        await session.send(submit=[submit(handle, ids=[5 + handle] * 200, max_new=5) for handle in range(4)])
        await session.until_final(0, 1, 2, 3)
        assert all(row.ids == [7, 8, 9, 7, 8] for row in session.rows.values())


async def test_invalid_logits_end_one_request(tmp_path: Path) -> None:
    script = {"playbacks": [{"prompt_prefix": [4], "output": [5], "repeat": True, "invalid_at": 3}, {"output": [6], "repeat": True}]}
    async with scripted(tmp_path, script) as found, found.session() as session:
        await session.send(submit=[submit(1, ids=[4, 4]), submit(2)])
        await session.until_final(1, 2)
        assert session.rows[1].ended.reason == pb.FINISH_REASON_ERROR
        assert session.rows[2].ids == [6] * 8


async def test_drain_finishes_what_runs_and_refuses_new_sessions(tmp_path: Path) -> None:
    script = _ENDLESS | {"step_ms": 5}
    async with scripted(tmp_path, script) as found, found.session() as session:
        await session.send(submit=[submit(1, max_new=200)])
        await session.until_tokens(1, 2)
        found.program.process.terminate()
        while not session.draining:
            await session.read()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _generate(found, submit())
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        await session.send(submit=[submit(2, max_new=3)])  # a Session that is there may still finish its work
        await session.until_final(1, 2)
        assert len(session.rows[1].ids) == 200
        assert await asyncio.to_thread(found.program.process.wait, 20) == 0


async def test_the_deadline_ends_a_request(tmp_path: Path) -> None:
    async with scripted(tmp_path, _ENDLESS | {"step_ms": 5}) as found, found.session() as session:
        await session.send(submit=[submit(1, max_new=8000, deadline_ms=100), submit(2, max_new=8000)])
        await session.until_final(1)
        assert session.rows[1].ended.error.code == 4
        await session.send(update=[pb.Update(handle=2, deadline_ms=1)])
        await session.until_final(2)
        assert session.rows[2].ended.error.code == 4


async def test_info_tells_model_limits_and_decisions(tmp_path: Path) -> None:
    arguments = ("--max-total-tokens", "4k", "--served-model-name", "m", "--weight-version", "v7")
    async with scripted(tmp_path, _ENDLESS, *arguments) as found:
        await _generate(found, submit())
        model = await found.scheduler.GetModelInfo(pb.GetModelInfoRequest())
        assert (model.model, model.vocab_size, model.block_size, model.weight_version) == ("m", 32000, 16, "v7")
        info = await found.scheduler.GetServerInfo(pb.GetServerInfoRequest(decisions=10))
        settings = {setting.name: setting for setting in info.settings}
        assert settings["max_total_num_tokens"].value == "4000"
        assert settings["weight_version"].source == "user"
        assert settings["schedule_policy"].value == "fcfs"
        assert [decision["kind"] for decision in json.loads(info.decisions_json)][-1] == "finish"
        assert "max_running_requests" in info.report
        assert {timing.phase for timing in info.startup} >= {"bind", "tokenizer"}
        assert list(info.launch_command)[1:3] == ["-m", "services.scheduler"]
        assert (await found.admin.FreezeGc(pb.FreezeGcRequest())).frozen_objects > 0
        assert (await found.admin.SetLogLevel(pb.SetLogLevelRequest(level="debug"))).previous == "info"
        with pytest.raises(grpc.aio.AioRpcError, match="level"):
            await found.admin.SetLogLevel(pb.SetLogLevelRequest(level="shout"))


async def test_flush_waits_for_running_requests_or_says_so(shared_worker: Any) -> None:
    async with shared_worker.session() as session:
        await session.send(submit=[submit(1, max_new=8000)])
        await session.until_tokens(1, 1)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await shared_worker.admin.FlushCache(pb.FlushCacheRequest())
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        waiting = asyncio.create_task(_flush(shared_worker))
        await session.send(cancel=[pb.Cancel(handle=1)])
        assert (await waiting).removed_tokens > 0
    assert (await shared_worker.load()).kv_evictable_tokens == 0


async def _flush(found: Any) -> Any:
    return await found.admin.FlushCache(pb.FlushCacheRequest(timeout_ms=20_000))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--load-format", "auto"), "--model-path"),
        (("--model-path", "/nowhere"), "/nowhere"),
        (("--load-format", "scripted", "--script", "/nowhere.json"), "/nowhere.json"),
        (("--load-format", "scripted", "--radix-eviction-policy-config", '{"x": 1}'), "x"),
        (("--max-total-tokenz", "4"), "--max-total-tokens"),
        (("--chunked-prefill-size", "0"), "--chunked-prefill-size"),
    ],
)
def test_settings_that_cannot_be_served_end_the_process_with_the_reason(arguments: tuple[str, ...], named: str) -> None:
    done = run_to_end("services.scheduler", *arguments)
    assert done.returncode == 2
    assert named in done.stderr
