"""A request names a logit processor; code of a client is never taken."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.api.grpc_front.bodies import sampling_body
from gateway.api.schema.chat import read_chat
from gateway.api.schema.completions import read_completion
from gateway.api.schema.limits import Defaults
from gateway.api.schema.native import read_native
from gateway.flight.spec import LogitProcessor
from protos.gateway.v1 import gateway_pb2
from services.common.errors import Internal, InvalidRequest
from tests.fakes.script import Refuse
from tests.fakes.stack import running

DEFAULTS = Defaults(model="m", request_id="r")
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}]}
ASKED: dict[str, Any] = {"custom_logit_processor": "mine", "custom_params": {"token_ids": [1, 2]}}
TEXT = '{"token_ids": [1, 2]}'
PICKLED = json.dumps({"callable": "80049500"})


def test_all_doors_read_name_and_parameters() -> None:
    plain = LogitProcessor("mine", TEXT, "custom_logit_processor", "custom_params")
    assert read_chat({**CHAT, **ASKED}, DEFAULTS).spec.sampling.processor == plain
    assert read_completion({"prompt": "x", **ASKED}, DEFAULTS).specs[0].sampling.processor == plain
    [inside] = read_native({"text": "x", "sampling_params": ASKED}, DEFAULTS).specs
    assert inside.sampling.processor == LogitProcessor(
        "mine", TEXT, "sampling_params.custom_logit_processor", "sampling_params.custom_params"
    )
    body = {"text": ["x", "y"], "custom_logit_processor": ["mine", None]}
    params = [{"custom_params": ASKED["custom_params"]}, {}]
    first, second = read_native({**body, "sampling_params": params}, DEFAULTS).specs
    assert first.sampling.processor == LogitProcessor("mine", TEXT, "custom_logit_processor", "sampling_params.custom_params")
    assert second.sampling.processor is None
    message = gateway_pb2.SamplingParams(custom_logit_processor="mine", custom_params_json=TEXT)
    assert sampling_body(message) == ASKED


@pytest.mark.parametrize(
    ("asked", "field", "said"),
    [
        ({"custom_logit_processor": PICKLED}, "custom_logit_processor", "code that comes with a request is not run"),
        ({"custom_logit_processor": 3}, "custom_logit_processor", "must be a string"),
        ({"custom_params": {"a": 1}}, "custom_params", "give custom_logit_processor"),
        ({"custom_logit_processor": "mine", "custom_params": [1]}, "custom_params", "must be an object"),
        ({"custom_logit_processor": "mine", "custom_params": {"a": float("nan")}}, "custom_params", "is not JSON"),
        ({"custom_logit_processor": "mine", "custom_params": {"a": "x" * 17000}}, "custom_params", "16384 bytes"),
    ],
)
def test_what_cannot_be_one_is_refused_by_name(asked: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        read_chat({**CHAT, **asked}, DEFAULTS)
    assert caught.value.field == field
    with pytest.raises(InvalidRequest, match=said) as caught:
        read_native({"text": "x", "sampling_params": asked}, DEFAULTS)
    assert caught.value.field == f"sampling_params.{field}"


async def test_the_workers_refusal_names_the_clients_field() -> None:
    async with running(1) as stack:
        [worker] = stack.workers
        field = "sampling.custom_logit_processor"
        worker.script = lambda submit: [Refuse(InvalidRequest(f"{field}: off", field=field))]
        status, answer = await stack.post("/generate", {"text": "x", "custom_logit_processor": "mine"})
        assert status == 400
        assert "custom_logit_processor: off" in json.dumps(answer)
        assert "sampling.custom" not in json.dumps(answer)


async def test_a_processor_that_fails_is_named_and_the_request_is_not_tried_elsewhere() -> None:
    async with running(2) as stack:
        field = "sampling.custom_logit_processor"
        for worker in stack.workers:
            worker.script = lambda submit: [Refuse(Internal("custom_logit_processor 'mine' failed: KeyError", field=field))]
        status, answer = await stack.post("/generate", {"text": "x", "custom_logit_processor": "mine"})
        assert status == 500
        assert "custom_logit_processor 'mine' failed: KeyError" in json.dumps(answer)
        assert sum(len(worker.submits) for worker in stack.workers) == 1
