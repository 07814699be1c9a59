"""The official client, unmodified, against the whole suite and the embedded model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import grpc
import openai
import pytest
from pydantic import BaseModel, Field

from protos.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from tests.e2e.launched import MODEL, Suite, launched

QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
TEMPLATE = Path(__file__).parent / "tool_template.jinja"
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["C", "F"]}},
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}
CLOCK: Any = {
    "type": "function",
    "function": {"name": "now", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}},
}


class Person(BaseModel):
    """What a structured answer must be."""

    model_config = {"extra": "forbid"}
    name: str = Field(max_length=12)
    colour: Literal["red", "blå", "🐙"]
    age: int = Field(ge=0, le=150)


@pytest.fixture(scope="module")
def suite() -> Iterator[Suite]:
    with launched("--tokenizer.chat-template", str(TEMPLATE)) as made:
        yield made


@pytest.fixture(scope="module")
def client(suite: Suite) -> openai.OpenAI:
    return openai.OpenAI(base_url=suite.url + "/v1", api_key="none", max_retries=0, timeout=120)


def test_models(client: openai.OpenAI) -> None:
    [model] = client.models.list().data
    assert model.id == MODEL
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nope")


def test_chat_streamed_equals_chat_whole(client: openai.OpenAI) -> None:
    ask: dict[str, Any] = {"model": MODEL, "messages": QUESTION, "max_tokens": 16, "temperature": 0}
    whole = client.chat.completions.create(**ask)
    text, usage = "", None
    for chunk in client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}):
        text += chunk.choices[0].delta.content or "" if chunk.choices else ""
        usage = chunk.usage or usage
    assert text == whole.choices[0].message.content
    assert "Paris" in text
    assert usage is not None and whole.usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (whole.usage.prompt_tokens, whole.usage.completion_tokens)


def test_the_grpc_door_says_the_same(suite: Suite, client: openai.OpenAI) -> None:
    rest = client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=16, temperature=0)
    with grpc.insecure_channel(suite.grpc_target) as channel:
        door = gateway_pb2_grpc.GatewayStub(channel)  # type: ignore[no-untyped-call]
        message = gateway_pb2.ChatMessage(role="user", content=QUESTION[0]["content"])
        sampling = gateway_pb2.SamplingParams(max_new_tokens=16, temperature=0)
        answers = list(door.Chat(gateway_pb2.ChatRequest(messages=[message], sampling=sampling, stream=True)))
    assert "".join(answer.text for answer in answers) == rest.choices[0].message.content


def test_completions_of_every_shape(client: openai.OpenAI) -> None:
    ask: dict[str, Any] = {"model": MODEL, "max_tokens": 6, "temperature": 0}
    both = client.completions.create(**ask, prompt=["The sky is", "Water is"])
    single = client.completions.create(**ask, prompt="Water is")
    assert [choice.index for choice in both.choices] == [0, 1]
    assert both.choices[1].text == single.choices[0].text
    ids = client.post("/tokenize", body={"prompt": "Water is"}, cast_to=object)
    assert isinstance(ids, dict)
    by_ids = client.completions.create(**ask, prompt=[ids["tokens"], ids["tokens"]])
    assert [choice.text for choice in by_ids.choices] == [single.choices[0].text] * 2


def test_logprobs_agree_streamed_and_whole(client: openai.OpenAI) -> None:
    ask: dict[str, Any] = {"model": MODEL, "messages": QUESTION, "max_tokens": 5, "temperature": 0, "logprobs": True, "top_logprobs": 2}
    whole = client.chat.completions.create(**ask).choices[0].logprobs
    assert whole is not None and whole.content is not None
    streamed: list[Any] = []
    for chunk in client.chat.completions.create(**ask, stream=True):
        streamed += (chunk.choices[0].logprobs.content or []) if chunk.choices[0].logprobs else []
    assert [entry.token for entry in streamed] == [entry.token for entry in whole.content]
    assert all(entry.logprob == entry.top_logprobs[0].logprob for entry in whole.content)
    spelled = client.completions.create(model=MODEL, prompt="One two", max_tokens=3, temperature=0, logprobs=2, echo=True).choices[0]
    assert spelled.logprobs is not None and spelled.logprobs.tokens is not None and spelled.logprobs.text_offset is not None
    assert "".join(spelled.logprobs.tokens) == spelled.text
    assert spelled.logprobs.text_offset == [len("".join(spelled.logprobs.tokens[:i])) for i in range(len(spelled.logprobs.tokens))]


def test_errors_are_what_the_client_knows(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt="x", temperature=5)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="nope", messages=QUESTION)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "word " * 9000}], stream=True)
    assert long.value.code == "context_length_exceeded"
    assert client.completions.create(model=MODEL, prompt="x", max_tokens=1).choices


def test_structured_answers_parse(client: openai.OpenAI) -> None:
    ask: list[Any] = [{"role": "user", "content": "Invent a person as JSON with name, colour and age."}]
    answer = client.chat.completions.parse(model=MODEL, messages=ask, response_format=Person, max_tokens=120, temperature=0)
    assert isinstance(answer.choices[0].message.parsed, Person)


def test_a_bad_schema_is_refused_before_the_stream(client: openai.OpenAI) -> None:
    for schema in ({"type": "strng"}, {"$ref": "#/nope"}, {"type": "string", "pattern": "["}):
        wanted: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model=MODEL, messages=QUESTION, response_format=wanted, stream=True)


class Draw(BaseModel):
    """Three different numbers, of as many as `Literal` gives: the grammar cannot see that they differ."""

    model_config = {"extra": "forbid"}
    numbers: list[Literal[1, 2]] = Field(min_length=3, max_length=3, json_schema_extra={"uniqueItems": True})


def test_what_the_grammar_cannot_hold_is_checked_afterwards(client: openai.OpenAI) -> None:
    ask: dict[str, Any] = {"model": MODEL, "messages": QUESTION, "max_tokens": 80, "temperature": 0}
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.parse(**ask, response_format=Draw)
    assert "uniqueItems" in refused.value.message
    after = {"schema_check": "after"}
    choice = client.chat.completions.parse(**ask, response_format=Draw, extra_body=after).choices[0]
    assert isinstance(choice.message.parsed, Draw) and choice.finish_reason == "stop"
    verdict = (choice.model_extra or {})["schema_check"]
    assert [(error["path"], error["keyword"]) for error in verdict["errors"]] == [("/numbers", "uniqueItems")]
    schema: Any = {"type": "json_schema", "json_schema": {"name": "draw", "schema": Draw.model_json_schema()}}
    text, told = "", []
    for chunk in client.chat.completions.create(**ask, response_format=schema, extra_body=after, stream=True):
        text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
        told += (chunk.model_extra or {}).get("schema_check", [])
    assert text == choice.message.content
    assert told == [{"index": 0, **verdict}]


def test_streamed_tool_calls(client: openai.OpenAI) -> None:
    names, arguments = [], ""
    stream = client.chat.completions.create(
        model=MODEL, messages=QUESTION, tools=[WEATHER], tool_choice="required", stream=True, max_tokens=200, temperature=0,
        parallel_tool_calls=False,
    )  # fmt: skip
    for chunk in stream:
        for call in chunk.choices[0].delta.tool_calls or []:
            assert call.function is not None
            names += [call.function.name] if call.function.name else []
            arguments += call.function.arguments or ""
    assert names == ["get_weather"]
    assert set(json.loads(arguments)) == {"city", "unit"}


def test_an_agent_of_twenty_turns(client: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "Find out the weather and the time."}]
    for turn in range(20):
        choice: Any = "required" if turn % 2 else {"type": "function", "function": {"name": "now" if turn % 4 else "get_weather"}}
        answer = client.chat.completions.create(
            model=MODEL, messages=messages, tools=[WEATHER, CLOCK], tool_choice=choice, max_tokens=80, temperature=0,
            parallel_tool_calls=False,
        ).choices[0]  # fmt: skip
        assert answer.finish_reason == "tool_calls", answer
        [call] = answer.message.tool_calls or []
        assert call.type == "function"
        assert isinstance(json.loads(call.function.arguments), dict)
        messages.append(answer.message.model_dump(exclude_none=True))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": f"It is {turn} degrees."})
    final = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=10, temperature=0)
    assert final.choices[0].message.content
