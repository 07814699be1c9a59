"""A worker whose memory is cut off by the kernel: what would be its death becomes smaller steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protos.scheduler.v1 import scheduler_pb2 as pb
from tests.integration.control_group import memory_group
from tests.integration.worker_client import submit, worker

_WIDE = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 16384,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    "eos_token_id": 2,
}
_FLAGS = ("--load-format", "dummy", "--max-total-tokens", "16k", "--cpu-threads", "2", "--chunked-prefill-size", "-1")
_PROMPT, _PROMPTS = 3000, 5  # 15,000 tokens in one pass take some 500 MiB
_LIMIT = 160 << 20


async def test_a_worker_at_its_memory_limit_goes_on_in_smaller_steps(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(_WIDE))
    with memory_group(_LIMIT) as group:
        if group is None:
            pytest.skip("this user may not make memory control groups; test_headroom shows the same by injection")
        async with worker("--model-path", str(tmp_path), *_FLAGS) as found, found.session() as session:
            (group / "cgroup.procs").write_text(str(found.program.process.pid))
            handles = range(_PROMPTS)
            await session.send(submit=[submit(i, ids=[3 + (i + j) % 500 for j in range(_PROMPT)], max_new=4, **_LONG) for i in handles])
            await session.until_final(*handles)
            assert [session.rows[i].ended.reason for i in handles] == [pb.FINISH_REASON_LENGTH] * _PROMPTS
            info = await found.scheduler.GetServerInfo(pb.GetServerInfoRequest(decisions=256))
            assert any(decision["kind"] == "shrink" for decision in json.loads(info.decisions_json))
            await session.send(submit=[submit(99, ids=[7] * 200)])  # and serves on
            await session.until_final(99)
            assert len(session.rows[99].ids) == 8


_LONG = {"stops": pb.Stops(max_new_tokens=4, ignore_eos=True)}
