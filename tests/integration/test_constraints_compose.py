"""Constraints beside everything else a request may ask for: both backends, with and without overlap, in a pool too small for all."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from protos.scheduler.v1 import scheduler_pb2 as pb
from tests.integration.test_scheduler_constraints import save_model, text_of
from tests.integration.worker_client import Worker, scripted, submit, worker

PROMPT = list(range(10, 50))
SCHEMA = '{"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false}'
END = 256


BACKENDS = ("xgrammar", "llguidance")
TIGHT = ("--max-total-tokens", "256", "--chunked-prefill-size", "16", "--schedule-conservativeness", "0.1")
OVERLAP = {True: "--disable-overlap-schedule=false", False: "--disable-overlap-schedule=true"}


async def _with_overlap(running: Worker) -> bool:
    info: pb.GetServerInfoResponse = await running.scheduler.GetServerInfo(pb.GetServerInfoRequest())
    [value] = [setting.value for setting in info.settings if setting.name == "overlap_schedule"]
    return value.lower() == "true"


@pytest.fixture(params=[(name, overlap) for name in BACKENDS for overlap in OVERLAP], ids=str)
async def found(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Worker]:
    name, overlap = request.param
    save_model(tmp_path)
    flags = ["--model-path", str(tmp_path), "--load-format", "dummy", "--grammar-backend", name]
    async with worker(*flags, *TIGHT, OVERLAP[overlap]) as running:
        assert await _with_overlap(running) == overlap
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


FORM = '{"customer": [0-9]{3}, "status": "(open|completed and paid)", "balance": [0-9]{2}}'
_FORM_REGEX = FORM.replace('{"', '\\{"').replace("}}", "}\\}")


async def test_what_is_forced_comes_at_once_and_is_what_single_steps_say(found: Worker) -> None:
    """Log-probabilities need a step for each token; without them forced text needs none. Eight answers do not fit at once."""
    form = pb.Constraint(regex=_FORM_REGEX)
    prompt = pb.Prompt(token_ids=PROMPT, total_tokens=len(PROMPT))
    seeds = (1, 2, 3, 4)
    async with found.session() as session:
        stepped = _asked(1, form, 100, seeds, prompt=prompt, output=pb.Output(top_logprobs=1))
        await session.send(submit=[stepped, _asked(11, form, 100, seeds, prompt=prompt)])
        await session.until_final(*(handle + place for handle in (1, 11) for place in range(4)))
        for place in range(4):
            by_steps, at_once = session.rows[1 + place], session.rows[11 + place]
            assert re.fullmatch(_FORM_REGEX, text_of(at_once.ids))
            assert at_once.ids == by_steps.ids
            assert at_once.ended.reason == by_steps.ended.reason
            assert at_once.ended.usage.completion_tokens == by_steps.ended.usage.completion_tokens
        whole = session.rows[11].ids
        for handle, seam in ((21, 1), (31, 14), (41, 30)):
            choice = pb.Choice(seed=seeds[0], prior_output_ids=whole[:seam])
            await session.send(submit=[_asked(handle, form, 100, choices=[choice], prompt=prompt)])
            await session.until_final(handle)
            assert whole[:seam] + session.rows[handle].ids == whole
        stop = pb.Stops(max_new_tokens=100, strings=["stat"], skip_special_tokens=True)
        await session.send(submit=[_asked(51, form, prompt=prompt, stops=stop), _asked(61, form, 7, prompt=prompt)])
        await session.until_final(51, 61)
        assert text_of(session.rows[51].ids).endswith("stat")
        assert session.rows[51].ended.keep_bytes == len(session.rows[51].ids) - len("stat")
        assert text_of(session.rows[61].ids) == '{"custo'
        assert session.rows[61].ended.reason == pb.FINISH_REASON_LENGTH


THOUGHT, MARK, WISH = "so-2+2-is-</thin-no-" * 2, "</think>", "anything-but-digits"
DIGITS = "[0-9]{20}"


def _ids(text: str) -> list[int]:
    """Of printable ASCII."""
    return [ord(character) - ord("!") for character in text]


@pytest.fixture(params=[(name, overlap) for name in BACKENDS for overlap in OVERLAP], ids=str)
async def thinker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Worker]:
    """A worker whose model thinks aloud, and then says what no grammar here allows; prompts that begin with 7 think for ever."""
    name, overlap = request.param
    save_model(tmp_path)
    endless = {"prompt_prefix": [7], "output": _ids(THOUGHT), "repeat": True}
    aloud = {"output": _ids(THOUGHT + MARK + WISH)}
    script = {"vocab_size": 257, "context_length": 512, "eos_token_ids": [END], "playbacks": [endless, aloud]}
    flags = ["--tokenizer-path", str(tmp_path), "--grammar-backend", name, *TIGHT, OVERLAP[overlap]]
    async with scripted(tmp_path, script, *flags) as running:
        assert await _with_overlap(running) == overlap
        yield running


def _after_thought(**kind: Any) -> pb.Constraint:
    return pb.Constraint(begin_after_ids=_ids(MARK), **kind)


async def test_a_grammar_begins_after_the_thought(thinker: Worker) -> None:
    async with thinker.session() as session:
        await session.send(submit=[_asked(1, _after_thought(regex=DIGITS), 100)])
        await session.until_final(1)  # the grammar is there, and the eight begin together
        handles = [10 * place for place in range(1, 9)]
        await session.send(submit=[_asked(handle, _after_thought(regex=DIGITS), 100) for handle in handles])
        await session.until_final(*handles)
        for handle in handles:
            thought, _, answer = text_of(session.rows[handle].ids).rpartition(MARK)
            assert thought == THOUGHT
            assert re.fullmatch(DIGITS, answer)
            assert session.rows[handle].ended.reason in (pb.FINISH_REASON_STOP, pb.FINISH_REASON_GRAMMAR_END)
        assert sum(session.rows[handle].ended.retractions for handle in handles) > 0

        endless = pb.Prompt(token_ids=[7, *PROMPT], total_tokens=1 + len(PROMPT))
        await session.send(
            submit=[
                _asked(110, _after_thought(json_schema=SCHEMA), 100),
                _asked(120, _after_thought(regex=DIGITS), 100, prompt=endless),
                _asked(130, pb.Constraint(regex=DIGITS), 100),
            ]
        )
        await session.until_final(110, 120, 130)
        thought, _, answer = text_of(session.rows[110].ids).rpartition(MARK)
        assert thought == THOUGHT
        assert isinstance(json.loads(answer)["ok"], bool)
        assert text_of(session.rows[120].ids) == (THOUGHT * 3)[:100]
        assert session.rows[120].ended.reason == pb.FINISH_REASON_LENGTH
        assert re.fullmatch(DIGITS, text_of(session.rows[130].ids))


async def test_a_thought_resumed_anywhere_leads_to_the_same_answer(thinker: Worker) -> None:
    prompt = pb.Prompt(token_ids=PROMPT, total_tokens=len(PROMPT))
    async with thinker.session() as session:
        await session.send(submit=[_asked(1, _after_thought(regex=DIGITS), 100, prompt=prompt)])
        await session.until_final(1)
        whole = [token for token in session.rows[1].ids if token != END]
        begins = len(THOUGHT + MARK)
        for handle, seam in enumerate((3, begins - 4, begins, begins + 7), 2):
            choice = pb.Choice(seed=1, prior_output_ids=whole[:seam])
            await session.send(submit=[_asked(handle, _after_thought(regex=DIGITS), 100, choices=[choice], prompt=prompt)])
            await session.until_final(handle)
            assert session.rows[handle].first == seam
            assert whole[:seam] + [token for token in session.rows[handle].ids if token != END] == whole
