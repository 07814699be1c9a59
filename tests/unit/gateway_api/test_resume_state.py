"""What a worker is told of a request that another one had begun: all of it, and the output so far."""

from __future__ import annotations

from typing import Any

from protos.scheduler.v1 import scheduler_pb2 as pb
from tests.fakes.script import Die, Finish, Logprobs, Script, story
from tests.fakes.stack import running

LENGTH, CUT = 12, 5
BODY: dict[str, Any] = {
    "text": "tell me",
    "return_logprob": True,
    "top_logprobs_num": 2,
    "token_ids_logprob": [65, 66],
    "logprob_start_len": -1,
    "priority": 3,
    "extra_key": "tenant",
    "cache_salt": "salt",
    "sampling_params": {
        "max_new_tokens": LENGTH,
        "min_new_tokens": 7,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.05,
        "frequency_penalty": 0.5,
        "presence_penalty": 0.25,
        "repetition_penalty": 1.1,
        "sampling_seed": 42,
        "logit_bias": {"65": -1.5},
        "stop": ["never this"],
        "stop_regex": "nor this[0-9]",
        "stop_token_ids": [200],
        "ignore_eos": True,
        "regex": "[a-z]*",
        "custom_logit_processor": "allowed_token_ids",
        "custom_params": {"token_ids": [65]},
    },
}
OUTPUT = story(list(b"tell me"), LENGTH)


def script(submit: pb.Submit, *, dies: bool) -> Script:
    """Tokens with logprobs that tell the position; the first life ends after CUT tokens."""
    end = CUT if dies and not submit.choices[0].prior_output_ids else LENGTH
    actions: list[Any] = [Logprobs(OUTPUT[at], -0.1 * at, ((OUTPUT[at], -0.1 * at), (66, -9.0))) for at in range(end)]
    return [*actions, Finish("LENGTH") if end == LENGTH else Die()]


async def told(*, dies: bool) -> tuple[list[pb.Submit], dict[str, Any]]:
    """What the workers received, in order, and the client's answer."""
    async with running(2) as stack:
        for worker in stack.workers:
            worker.script = lambda submit: script(submit, dies=dies)
        status, answer = await stack.post("/generate", BODY)
        assert status == 200, answer
        return sorted((s for worker in stack.workers for s in worker.submits), key=lambda submit: submit.attempt), answer


def bare(submit: pb.Submit) -> pb.Submit:
    """Without what belongs to one attempt."""
    copy = pb.Submit()
    copy.CopyFrom(submit)
    for name in ("handle_base", "attempt", "request_id", "waited_ms", "deadline_ms", "require_weight_version", "traceparent"):
        copy.ClearField(name)
    del copy.choices[0].prior_output_ids[:]
    return copy


async def test_a_resumed_request_is_the_undisturbed_one_and_its_output_so_far() -> None:
    (undisturbed,), calm = await told(dies=False)
    (first, second), resumed = await told(dies=True)
    assert bare(first) == bare(undisturbed)
    assert bare(second) == bare(undisturbed), "sampling, penalties, stops, constraint, logprobs, budget, seed"
    assert undisturbed.choices[0].seed == second.choices[0].seed == 42
    assert undisturbed.sampling.frequency_penalty == 0.5
    assert undisturbed.constraint.regex == "[a-z]*"
    assert (undisturbed.sampling.custom_logit_processor, undisturbed.sampling.custom_params) == ("allowed_token_ids", '{"token_ids": [65]}')
    assert list(undisturbed.output.logprob_ids) == [65, 66]
    assert list(second.choices[0].prior_output_ids) == OUTPUT[:CUT], "the seed's position and the budget count from here"
    assert (first.request_id, first.attempt, second.attempt) == (second.request_id, 1, 2)
    assert 0 < second.deadline_ms <= first.deadline_ms
    assert second.waited_ms >= first.waited_ms, "it keeps its time of arrival"
    assert second.require_weight_version == "v1"

    assert resumed["text"] == calm["text"] == bytes(OUTPUT).decode()
    assert (calm["meta_info"]["resumes"], resumed["meta_info"]["resumes"]) == (0, 1)
    for name in ("output_token_logprobs", "output_top_logprobs", "completion_tokens", "finish_reason"):
        assert resumed["meta_info"][name] == calm["meta_info"][name], name
    assert len(resumed["meta_info"]["output_token_logprobs"]) == LENGTH


async def test_a_seed_that_nobody_gave_is_kept_too() -> None:
    body = {"text": "tell me", "sampling_params": {"max_new_tokens": LENGTH, "temperature": 1.0, "n": 2}}
    async with running(2) as stack:
        for worker in stack.workers:
            worker.script = lambda submit: script(submit, dies=True)
        status, answer = await stack.post("/generate", body)
        assert status == 200, answer
        first, second = sorted((s for worker in stack.workers for s in worker.submits), key=lambda submit: submit.attempt)
        assert [c.seed for c in first.choices] == [c.seed for c in second.choices]
        assert len({c.seed for c in first.choices}) == 2
