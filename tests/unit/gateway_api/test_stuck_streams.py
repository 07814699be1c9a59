"""One request that a living worker has forgotten goes on elsewhere; the worker's other streams stay."""

from __future__ import annotations

import asyncio
from typing import Any

from protos.scheduler.v1 import scheduler_pb2 as pb
from tests.fakes.script import Emit, Finish, Script, Silence, Wait, story
from tests.fakes.stack import running, until


async def test_a_forgotten_stream_is_resumed_and_its_neighbours_are_not() -> None:
    prompts, length = ("one", "two", "six"), 60
    end = asyncio.Event()

    def script(submit: pb.Submit) -> Script:
        tokens = story(list(submit.prompt.token_ids), length)
        forgotten = bytes(submit.prompt.token_ids) == b"one" and not submit.choices[0].prior_output_ids
        actions: list[Any] = []
        for position, token in enumerate(tokens):
            if forgotten and position == 5:
                return [*actions, Silence()]
            actions += [Emit([token]), Wait(0.05)]
        return [*actions, *([] if submit.choices[0].prior_output_ids else [Wait(event=end)]), Finish("LENGTH")]

    async with running(2, worker_stall_secs=0.5) as stack:
        for worker in stack.workers:
            worker.script = script
        body = {"max_tokens": length}
        asks = [asyncio.create_task(stack.post("/v1/completions", body | {"prompt": prompt})) for prompt in prompts]
        await until(lambda: sum(len(worker.submits) for worker in stack.workers) == 4)
        lost = next(w for w in stack.workers if any(bytes(s.prompt.token_ids) == b"one" and s.attempt == 1 for s in w.submits))
        second = next(s for w in stack.workers if w is not lost for s in w.submits if s.attempt == 2)
        assert list(second.choices[0].prior_output_ids) == story(list(b"one"), length)[:5]
        dropped = next(run for run in lost.runs if bytes(run.prompt) == b"one")
        await until(dropped.cancelled.is_set)
        assert dropped.cause == pb.CANCEL_CAUSE_SUPERSEDED
        end.set()
        for prompt, (status, answer) in zip(prompts, await asyncio.gather(*asks), strict=True):
            assert status == 200
            assert answer["choices"][0]["text"] == bytes(story(list(prompt.encode()), length)).decode()
        assert sum(len(worker.submits) for worker in stack.workers) == 4
        assert [worker.sessions for worker in stack.workers] == [1, 1]
