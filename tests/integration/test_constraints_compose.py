"""Constraints beside everything else a request may ask for, with both backends, in a pool too small for all at once."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protos.scheduler.v1 import scheduler_pb2 as pb
from tests.integration.test_scheduler_constraints import save_model, text_of
from tests.integration.worker_client import Worker, submit, worker

PROMPT = list(range(10, 50))
SCHEMA = '{"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false}'
END = 256


@pytest.fixture(params=["xgrammar", "llguidance"])
async def found(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Worker]:
    save_model(tmp_path)
    flags = ["--model-path", str(tmp_path), "--load-format", "dummy", "--grammar-backend", request.param]
    async with worker(*flags, "--max-total-tokens", "256", "--chunked-prefill-size", "16", "--schedule-conservativeness", "0.1") as running:
        yield running


def _asked(handle: int, constraint: pb.Constraint, max_new: int = 60, seeds: tuple[int, ...] = (1,), **fields: object) -> pb.Submit:
    choices = [pb.Choice(index=index, seed=seed) for index, seed in enumerate(seeds)]
    parts = {"sampling": pb.Sampling(temperature=1.0), "choices": choices, **fields}
    return submit(handle, [handle, *PROMPT], max_new, constraint=constraint, **parts)


async def test_with_everything(found: Worker) -> None:
    digits = pb.Constraint(regex="[0-9]{60}")
    async with found.session() as session:
        await session.send(submit=[_asked(10 * place, digits, seeds=(place,)) for place in range(1, 9)])
        await session.until_final(*(10 * place for place in range(1, 9)))
        rows = [session.rows[10 * place] for place in range(1, 9)]
        assert all(re.fullmatch("[0-9]{60}", text_of(row.ids)) for row in rows)
        assert sum(row.ended.retractions for row in rows) > 0

        seeds = (5, 6, 7)
        output = pb.Output(top_logprobs=2)
        free_bias = pb.Sampling(temperature=1.0, logit_bias=[pb.LogitBias(token_id=7, bias=100)])
        await session.send(
            submit=[
                _asked(100, pb.Constraint(regex="[0-9]{8}"), seeds=seeds, output=output),
                _asked(110, pb.Constraint(json_schema=SCHEMA), sampling=free_bias),
                _asked(120, digits, stops=pb.Stops(max_new_tokens=60, min_new_tokens=5, strings=["7"], skip_special_tokens=True)),
                _asked(130, digits, stops=pb.Stops(max_new_tokens=12, ignore_eos=True)),
                _asked(140, pb.Constraint(regex="ab?c+"), max_new=30),
            ]
        )
        await session.until_final(100, 101, 102, 110, 120, 130, 140)
        three = [text_of(session.rows[100 + place].ids) for place in range(3)]
        assert all(re.fullmatch("[0-9]{8}", text) for text in three)
        assert len(set(three)) == 3
        assert isinstance(json.loads(text_of(session.rows[110].ids))["ok"], bool)
        stopped = session.rows[120]
        assert text_of(stopped.ids).isdigit()
        if stopped.ended.WhichOneof("matched") == "stop_index":
            assert text_of(stopped.ids).index("7", 4) == stopped.ended.keep_bytes
        assert re.fullmatch("[0-9]{12}", text_of(session.rows[130].ids))
        assert session.rows[130].ended.reason == pb.FINISH_REASON_LENGTH
        assert re.match("ab?c+", text_of(session.rows[140].ids))


async def test_a_resumed_answer_goes_on_in_its_grammar(found: Worker) -> None:
    spec = pb.Constraint(regex="(ab|cd){10}[0-9]{10}")
    prompt = pb.Prompt(token_ids=PROMPT, total_tokens=len(PROMPT))
    async with found.session() as session:
        await session.send(submit=[_asked(1, spec, seeds=(9,), prompt=prompt)])
        await session.until_final(1)
        whole = [token for token in session.rows[1].ids if token != END]
        assert re.fullmatch("(ab|cd){10}[0-9]{10}", text_of(whole))
        for handle, seam in ((2, 1), (3, 13), (4, 25)):
            choice = pb.Choice(seed=9, prior_output_ids=whole[:seam])
            await session.send(submit=[_asked(handle, spec, choices=[choice], prompt=prompt)])
            await session.until_final(handle)
            again = [token for token in session.rows[handle].ids if token != END]
            assert session.rows[handle].first == seam
            assert whole[:seam] + again == whole
        wrong = pb.Choice(seed=9, prior_output_ids=[200, 201])
        await session.send(submit=[_asked(5, spec, choices=[wrong], prompt=prompt)])
        await session.until_final(5)
        assert "does not follow the grammar" in session.rows[5].ended.error.message
