"""The worker program on a real engine with a tiny random model: cache, batches, seeds, logprobs, both paths."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from protos.scheduler.v1 import scheduler_pb2 as pb
from tests.integration.programs import run_to_end
from tests.integration.worker_client import Worker, WorkerSession, submit, worker

_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    "eos_token_id": 2,
}
_FLAGS = ("--load-format", "dummy", "--max-total-tokens", "4k", "--cpu-threads", "2")


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(_CONFIG))
    return str(tmp_path)


async def _run(session: WorkerSession, *requests: pb.Submit) -> list[list[int]]:
    await session.send(submit=requests)
    await session.until_final(*(request.handle_base for request in requests))
    return [session.rows[request.handle_base].ids for request in requests]


def _sampled(handle: int, ids: list[int], seed: int, **fields: Any) -> pb.Submit:
    parts: dict[str, Any] = {
        "choices": [pb.Choice(seed=seed)],
        "sampling": pb.Sampling(temperature=0.9, top_p=0.95),
        "stops": pb.Stops(max_new_tokens=24, ignore_eos=True),
    }
    return submit(handle, ids, **(parts | fields))


async def test_native_path_repeats_itself_in_every_mode(folder: str) -> None:
    prompts = [[3 + (i * 7 + j) % 500 for j in range(20 + 9 * i)] for i in range(8)]
    async with worker("--model-path", folder, *_FLAGS, "--attention-backend", "cpu", "--chunked-prefill-size", "48") as found:
        info = await found.scheduler.GetModelInfo(pb.GetModelInfoRequest())
        assert (info.dtype, info.batch_invariant, info.architecture) == ("bfloat16", True, "LlamaForCausalLM")
        async with found.session() as session:
            together = await _run(session, *(_sampled(i, ids, seed=i) for i, ids in enumerate(prompts)))
            for i, ids in enumerate(prompts):  # alone, and now with the prompt in the cache
                assert await _run(session, _sampled(100 + i, ids, seed=i)) == [together[i]]
                assert session.rows[100 + i].ended.usage.cached.device >= len(ids) - 1
            (other,) = await _run(session, _sampled(200, prompts[0], seed=99))
            assert other != together[0]
            resumed = _sampled(300, prompts[3], seed=3, choices=[pb.Choice(seed=3, prior_output_ids=together[3][:10])])
            assert await _run(session, resumed) == [together[3][10:]]


async def test_a_restart_changes_no_token(folder: str) -> None:
    asked = [_sampled(i, [3 + (i * 11 + j) % 500 for j in range(10 + 3 * i)], seed=i) for i in range(20)]
    found = []
    for _ in range(2):
        async with worker("--model-path", folder, *_FLAGS, "--attention-backend", "cpu") as one, one.session() as session:
            found.append(await _run(session, *asked))
    assert found[0] == found[1]


async def test_choices_differ_by_seed_and_share_their_prompt(folder: str) -> None:
    async with worker("--model-path", folder, *_FLAGS) as found, found.session() as session:
        choices = [pb.Choice(index=i, seed=5) for i in range(4)]
        await session.send(submit=[_sampled(1, list(range(3, 203)), seed=0, choices=choices)])
        await session.until_final(1, 2, 3, 4)
        assert len({tuple(session.rows[h].ids) for h in (1, 2, 3, 4)}) == 4
        assert sorted(session.rows[h].ended.usage.cached.device for h in (1, 2, 3, 4)) == [0, 199, 199, 199]


async def test_prompt_logprobs_agree_with_output_logprobs(folder: str) -> None:
    """What the model gave its own output while producing it, it gives again when the same tokens are the prompt."""
    async with worker("--model-path", folder, *_FLAGS, "--dtype", "float32") as found, found.session() as session:
        prompt = list(range(10, 40))
        wanted = pb.Output(top_logprobs=2)
        chosen = await _output_logprobs(session, submit(1, prompt, output=wanted, stops=pb.Stops(max_new_tokens=12, ignore_eos=True)))
        whole = prompt + session.rows[1].ids
        again = submit(2, whole, output=pb.Output(top_logprobs=0, prompt_logprobs_from=len(prompt)), stops=pb.Stops(max_new_tokens=1))
        await _run(session, again)
        found_logprobs = session.rows[2].prompt_logprobs
        assert len(found_logprobs) == 12
        assert found_logprobs == pytest.approx(chosen, abs=1e-6)
        assert all(math.isfinite(value) and value <= 0 for value in found_logprobs)


async def _output_logprobs(session: WorkerSession, request: pb.Submit) -> list[float]:
    await session.send(submit=[request])
    chosen: list[float] = []
    while True:
        frame = await session.read()
        assert frame is not None
        chosen.extend(frame.step.logprobs.chosen)
        if frame.final:
            return chosen


async def test_the_fallback_says_so_and_serves(folder: str) -> None:
    async with worker("--model-path", folder, *_FLAGS, "--attention-backend", "torch_native") as found:
        info = await found.scheduler.GetModelInfo(pb.GetModelInfoRequest())
        assert (info.dtype, info.batch_invariant) == ("float32", False)
        settings = await _settings(found)
        assert settings["attention_backend"].reason.startswith("PyTorch")
        async with found.session() as session:
            first, second = await _run(session, submit(1, [5, 6, 7]), submit(2, [5, 6, 7]))
            assert first == second
            assert len(first) > 0


@pytest.mark.parametrize("wish", [("--enable-deterministic-inference",), ("--rl-on-policy-target", "fsdp")], ids=" ".join)
def test_a_path_that_promises_nothing_is_refused_where_determinism_is_wanted(folder: str, wish: tuple[str, ...]) -> None:
    done = run_to_end("services.scheduler", "--model-path", folder, *_FLAGS, "--attention-backend", "torch_native", *wish)
    assert done.returncode != 0
    assert f"{wish[0]}: answers of the torch_native path depend on their batch" in done.stderr


async def _settings(found: Worker) -> dict[str, Any]:
    info = await found.scheduler.GetServerInfo(pb.GetServerInfoRequest())
    return {setting.name: setting for setting in info.settings}


async def test_a_small_pool_runs_exactly_as_many_as_fit(folder: str) -> None:
    """4,096 slots, prompts of 256, outputs of 512 with ignore_eos: five at a time, none put back."""
    flags = ("--model-path", folder, "--load-format", "dummy", "--max-total-tokens", "4096", "--context-length", "512")
    async with worker(*flags) as found, found.session() as session:
        requests = [
            submit(i, [3 + (i + j) % 500 for j in range(256)], stops=pb.Stops(max_new_tokens=256, ignore_eos=True)) for i in range(16)
        ]
        await session.send(submit=requests)
        most = 0
        while not all(i in session.rows and session.rows[i].final for i in range(16)):
            frame = await session.read()
            assert frame is not None
            most = max(most, frame.load.running)
        assert 7 <= most <= 8
        assert all(session.rows[i].ended.retractions == 0 for i in range(16))
        load = await found.until_idle()
        assert load.kv_total_tokens == 4096
        assert load.retracted == 0
