"""The gRPC door gives the same answers and verdicts as REST."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from protos.gateway.v1 import gateway_pb2 as pb
from protos.gateway.v1 import gateway_pb2_grpc as pb_grpc
from services.common.grpc_errors import from_rpc_error
from tests.fakes.script import Finish, Logprobs, say
from tests.fakes.stack import Stack, running


@pytest.fixture
async def door(stack: Stack) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{stack.app.host.port}") as channel:
        yield pb_grpc.GatewayStub(channel)  # type: ignore[no-untyped-call]


async def test_streamed_and_whole(stack: Stack, door: Any) -> None:
    stack.worker.script = lambda submit: say("naïve 🐈 end")
    request = pb.GenerateRequest(text="x", return_token_ids=True, request_id="g1")
    [whole] = [m async for m in door.Generate(request)]
    assert whole.text == "naïve 🐈 end"
    assert whole.finish.reason == "stop"
    assert whole.finish.matched_token_id == 256
    assert whole.finish.usage.prompt_tokens == 1
    request.stream = True
    messages = [m async for m in door.Generate(request)]
    assert "".join(m.text for m in messages) == whole.text
    assert [t for m in messages for t in m.token_ids] == list(whole.token_ids)
    assert [m.HasField("finish") for m in messages].count(True) == 1


@pytest.mark.parametrize("method", ["Generate", "Chat", "Tokenize", "Abort"])
async def test_what_is_no_message_is_the_callers_fault(stack: Stack, method: str, caplog: pytest.LogCaptureFixture) -> None:
    channel: Any = grpc.aio.insecure_channel(f"127.0.0.1:{stack.app.host.port}")
    async with channel:
        many = method in ("Generate", "Chat")
        call = (channel.unary_stream if many else channel.unary_unary)(f"/headrace.gateway.v1.Gateway/{method}")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await (call(b"\xff\xff\xff\x00").read() if many else call(b"\xff\xff\xff\x00"))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "not a message" in (caught.value.details() or "")
    assert not [record for record in caplog.records if record.exc_info]


async def test_chat_is_the_same_as_rest(stack: Stack, door: Any) -> None:
    stack.worker.script = lambda submit: say("hello " + str(len(submit.prompt.token_ids)))
    _, rest = await stack.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
    [message] = [m async for m in door.Chat(pb.ChatRequest(messages=[pb.ChatMessage(role="user", content="x")]))]
    assert message.text == rest["choices"][0]["message"]["content"]


async def test_logprobs(stack: Stack, door: Any) -> None:
    stack.worker.script = lambda submit: [Logprobs(104, -0.5, ((104, -0.5), (105, -1.0))), Finish("LENGTH")]
    request = pb.GenerateRequest(text="x", logprobs=pb.LogprobParams(enabled=True, top=2))
    [message] = [m async for m in door.Generate(request)]
    [entry] = message.logprobs
    assert (entry.token_id, entry.token, entry.logprob) == (104, b"h", -0.5)
    assert [(t.token_id, t.token) for t in entry.top] == [(104, b"h"), (105, b"i")]


def _sampling(**fields: Any) -> pb.GenerateRequest:
    return pb.GenerateRequest(text="x", sampling=pb.SamplingParams(**fields))


def _chat(**fields: Any) -> pb.ChatRequest:
    return pb.ChatRequest(messages=[pb.ChatMessage(role="user", content="x")], **fields)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.GenerateRequest(), "text"),
        (pb.GenerateRequest(text=""), "text"),
        (pb.GenerateRequest(input_ids=pb.TokenIds(token_ids=[-1])), "input_ids"),
        (_sampling(temperature=-1), "sampling.temperature"),
        (_sampling(top_k=0), "sampling.top_k"),
        (_sampling(max_new_tokens=0), "sampling.max_new_tokens"),
        (_sampling(stop=[""]), "sampling.stop"),
        (_sampling(stop_regex=["("]), "sampling.stop_regex"),
        (_sampling(custom_params_json="{"), "sampling.custom_params_json"),
        (pb.GenerateRequest(text="x", request_id="a" * 2000), "request_id"),
        (pb.GenerateRequest(text="x", logprobs=pb.LogprobParams(enabled=True, top=1000)), "logprobs.top"),
        (pb.GenerateRequest(text="x", lora_path="a"), "lora_path"),
        (_chat(sampling=pb.SamplingParams(max_new_tokens=0)), "sampling.max_new_tokens"),
        (_chat(sampling=pb.SamplingParams(temperature=9)), "sampling.temperature"),
        (_chat(tools_json="{"), "tools_json"),
        (_chat(template_kwargs_json="["), "template_kwargs_json"),
        (pb.ChatRequest(messages=[pb.ChatMessage(role="assistant", tool_calls_json="{")]), "messages[0].tool_calls_json"),
    ],
)
async def test_bad_requests_name_the_field_as_the_contract_does(stack: Stack, door: Any, request_: Any, field: str) -> None:
    call = door.Chat if isinstance(request_, pb.ChatRequest) else door.Generate
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in call(request_):
            pass
    error = from_rpc_error(caught.value)
    assert (caught.value.code(), error.field) == (grpc.StatusCode.INVALID_ARGUMENT, field)
    assert field.split("[")[0].split(".")[-1] in error.message


async def test_unknown_models(stack: Stack, door: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in door.Generate(pb.GenerateRequest(model="nope", text="x")):
            pass
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


async def test_other_calls(stack: Stack, door: Any) -> None:
    models = await door.ListModels(pb.ListModelsRequest())
    assert [(m.id, m.max_model_len, m.ready) for m in models.models] == [("fake", 4096, True)]
    tokens = await door.Tokenize(pb.TokenizeRequest(texts=["ab"]))
    assert [list(s.token_ids) for s in tokens.sequences] == [[97, 98]]
    texts = await door.Detokenize(pb.DetokenizeRequest(sequences=[pb.TokenIds(token_ids=[97])]))
    assert list(texts.texts) == ["a"]
    assert (await door.Abort(pb.AbortRequest(request_id="nobody"))).aborted == 0


async def test_keys_are_wanted() -> None:
    async with running(api_key="secret") as stack, grpc.aio.insecure_channel(f"127.0.0.1:{stack.app.host.port}") as channel:
        stub: Any = pb_grpc.GatewayStub(channel)  # type: ignore[no-untyped-call]
        calls: tuple[Any, ...] = (
            lambda: stub.ListModels(pb.ListModelsRequest()),
            lambda: stub.Tokenize(pb.TokenizeRequest(texts=["a"])),
            lambda: stub.Detokenize(pb.DetokenizeRequest()),
            lambda: stub.Abort(pb.AbortRequest(all=True)),
            lambda: stub.Generate(pb.GenerateRequest(text="x")).read(),
            lambda: stub.Chat(pb.ChatRequest()).read(),
        )
        for call in calls:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call()
            assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
        metadata = (("authorization", "Bearer secret"),)
        assert (await stub.ListModels(pb.ListModelsRequest(), metadata=metadata)).models


async def test_a_client_made_from_reflection_alone(stack: Stack) -> None:
    import asyncio

    from google.protobuf import descriptor_pool, message_factory

    def ask() -> str:
        with grpc.insecure_channel(f"127.0.0.1:{stack.app.host.port}") as channel:
            database = ProtoReflectionDescriptorDatabase(channel)
            assert "headrace.gateway.v1.Gateway" in database.get_services()
            pool = descriptor_pool.DescriptorPool(database)
            method = pool.FindServiceByName("headrace.gateway.v1.Gateway").FindMethodByName("Generate")
            request_class = message_factory.GetMessageClass(method.input_type)
            answer_class = message_factory.GetMessageClass(method.output_type)
            call = channel.unary_stream(
                "/headrace.gateway.v1.Gateway/Generate",
                request_serializer=request_class.SerializeToString,
                response_deserializer=answer_class.FromString,
            )
            return "".join(answer.text for answer in call(request_class(text="x"), timeout=10))

    stack.worker.script = lambda submit: say("reflected")
    assert await asyncio.to_thread(ask) == "reflected"
