"""Logit processors at a running worker: beside everything else a request may ask for, and where they are off."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from protos.scheduler.v1 import scheduler_pb2 as pb
from tests.integration.test_scheduler_constraints import save_model, text_of
from tests.integration.worker_client import Worker, submit, worker

PROMPT = list(range(10, 50))
HERE = "tests.unit.logit_processors.processors"
FLAGS = ("--load-format", "dummy", "--max-total-tokens", "256", "--chunked-prefill-size", "16", "--schedule-conservativeness", "0.1")
MINE = ("--enable-custom-logit-processor", "--logit-processors", f"echo={HERE}:echo", f"breaks={HERE}:breaks")
FIELD = "sampling.custom_logit_processor"
STOPS = pb.Stops(max_new_tokens=50, ignore_eos=True, strings=["never said, but for all the worker knows the end may come"])


@pytest.fixture(params=["thread", "process"])
async def found(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Worker]:
    save_model(tmp_path)
    flags = ["--model-path", str(tmp_path), *FLAGS, *MINE, "--engine-client", request.param]
    async with worker(*flags, f"--disable-overlap-schedule={str(request.param == 'process').lower()}") as running:
        yield running


def _asked(handle: int, name: str, params: str, seeds: tuple[int, ...] = (1,), **fields: object) -> pb.Submit:
    parts: dict[str, Any] = {
        "sampling": pb.Sampling(temperature=1.0, custom_logit_processor=name, custom_params=params),
        "stops": STOPS,
        "choices": [pb.Choice(index=index, seed=seed) for index, seed in enumerate(seeds)],
        **fields,
    }
    return submit(handle, PROMPT, **parts)


async def test_with_everything(found: Worker) -> None:
    async with found.session() as session:
        bias = '{"bias": 9}'
        await session.send(submit=[_asked(1, "echo", bias, (5, 6)), _asked(11, "", "", (5, 6))])
        await session.until_final(1, 2, 11, 12)
        alone = [session.rows[handle].ids for handle in (1, 2)]
        assert alone[0] != alone[1]
        for handle, other in ((1, 11), (2, 12)):
            followed, free = (sum(b == a + 1 for a, b in pairwise(session.rows[at].ids)) for at in (handle, other))
            assert followed > free + 20

        # too many for the pool, one of them breaking in the middle: put back and taken up again, with the same output
        crowd = [_asked(10 * place, "echo", bias, (5, 6), output=pb.Output(top_logprobs=1)) for place in range(2, 6)]
        forced = _asked(70, "allowed_token_ids", json.dumps({"token_ids": [ord("a") - ord("!"), ord("7") - ord("!")]}))
        forced.constraint.regex = "[0-9]{12}"
        await session.send(submit=[*crowd, _asked(60, "breaks", '{"at": 7}'), forced])
        await session.until_final(*(10 * place + index for place in range(2, 6) for index in (0, 1)), 60, 70)
        for place in range(2, 6):
            assert [session.rows[10 * place + index].ids for index in (0, 1)] == alone
        assert sum(row.ended.retractions for row in session.rows.values()) > 0
        broken = session.rows[60]
        assert len(broken.ids) == 7
        assert (broken.ended.reason, broken.ended.error.field) == (pb.FINISH_REASON_ERROR, FIELD)
        assert broken.ended.error.message == "custom_logit_processor 'breaks' failed: RuntimeError"
        assert text_of(session.rows[70].ids) == "7" * 12

        choice = pb.Choice(seed=5, prior_output_ids=alone[0][:21])
        await session.send(submit=[_asked(80, "echo", bias, choices=[choice])])
        await session.until_final(80)
        assert session.rows[80].ids == alone[0][21:]

        await session.send(submit=[_asked(90, "echo", "{}"), _asked(91, "unknown", "")])
        await session.until_final(90, 91)
        assert [session.rows[handle].ended.error.field for handle in (90, 91)] == ["sampling.custom_params", FIELD]


async def test_off_unless_it_is_turned_on(tmp_path: Path) -> None:
    save_model(tmp_path)
    async with worker("--model-path", str(tmp_path), *FLAGS) as running, running.session() as session:
        await session.send(submit=[_asked(1, "allowed_token_ids", '{"token_ids": [1]}')])
        await session.until_final(1)
        said = session.rows[1].ended.error
        assert (said.field, session.rows[1].ids) == (FIELD, [])
        assert "--enable-custom-logit-processor" in said.message
