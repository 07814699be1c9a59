"""A client that knows nothing but the address calls the gRPC door."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.e2e.launched import launched

SERVICE = "headrace.gateway.v1.Gateway"


def _ask(stub: Any, **request: str) -> Any:
    return next(iter(stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(**request)]))))


def _pool(channel: grpc.Channel) -> descriptor_pool.DescriptorPool:
    """Descriptors of the service and all it imports, fetched from the server."""
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    listed = [s.name for s in _ask(stub, list_services="").list_services_response.service]
    assert SERVICE in listed
    files: dict[str, descriptor_pb2.FileDescriptorProto] = {}
    raw = list(_ask(stub, file_containing_symbol=SERVICE).file_descriptor_response.file_descriptor_proto)
    while raw:
        file = descriptor_pb2.FileDescriptorProto.FromString(raw.pop())
        if file.name in files:
            continue
        files[file.name] = file
        for name in file.dependency:
            raw.extend(_ask(stub, file_by_filename=name).file_descriptor_response.file_descriptor_proto)
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()

    def add(name: str) -> None:
        if name not in added:
            added.add(name)
            for needed in files[name].dependency:
                add(needed)
            pool.Add(files[name])

    for name in files:
        add(name)
    return pool


def test_generate_by_reflection_alone() -> None:
    with launched() as suite, grpc.insecure_channel(suite.grpc_target) as channel:
        pool = _pool(channel)
        method = pool.FindServiceByName(SERVICE).FindMethodByName("Generate")
        request_class = message_factory.GetMessageClass(method.input_type)
        reply_class = message_factory.GetMessageClass(method.output_type)
        request: Any = request_class(text="The capital of France is", stream=True)
        request.sampling.max_new_tokens = 8
        request.sampling.temperature = 0
        call = channel.unary_stream(
            f"/{SERVICE}/Generate", request_serializer=request_class.SerializeToString, response_deserializer=reply_class.FromString
        )
        replies = list(call(request))
        rest = suite.generate(text="The capital of France is", sampling_params={"temperature": 0, "max_new_tokens": 8})
    assert "".join(reply.text for reply in replies) == rest["text"]
    assert "Paris" in rest["text"]
    assert [reply.HasField("finish") for reply in replies].count(True) == 1
