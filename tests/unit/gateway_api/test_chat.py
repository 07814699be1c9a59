"""Chat completions, whole and streamed."""

from __future__ import annotations

import json
from typing import Any

from tests.fakes.script import Finish, say
from tests.fakes.stack import Stack

ASK: dict[str, Any] = {"model": "fake", "messages": [{"role": "user", "content": "Say hi"}]}


async def test_whole_answer(stack: Stack) -> None:
    stack.worker.script = lambda submit: say("naïve 🐈‍⬛ 東京")
    status, answer = await stack.post("/v1/chat/completions", ASK)
    assert status == 200
    [choice] = answer["choices"]
    assert choice["message"]["content"] == "naïve 🐈‍⬛ 東京"
    assert choice["finish_reason"] == "stop"
    assert choice["matched_stop"] == 256
    assert answer["usage"]["prompt_tokens"] == len('user: Say hi""\nassistant: ')
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 3


async def test_stream_equals_whole_and_follows_the_chunk_schema(stack: Stack) -> None:
    text = 'naïve 🐈‍⬛ 東京 "quoted" \\ \n end'
    stack.worker.script = lambda submit: say(text)
    events = await stack.events("/v1/chat/completions", {**ASK, "stream": True, "stream_options": {"include_usage": True}})
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert len({(c["id"], c["created"], c["object"], c["model"]) for c in chunks}) == 1
    *body, last = chunks
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == len(text.encode()) + 1
    assert all(chunk["usage"] is None for chunk in body)
    deltas = [chunk["choices"][0] for chunk in body]
    assert [d["delta"].get("role") for d in deltas] == ["assistant"] + [None] * (len(deltas) - 1)
    assert "".join(d["delta"].get("content", "") for d in deltas if d["finish_reason"] is None) == text
    assert [d["finish_reason"] for d in deltas].count(None) == len(deltas) - 1
    assert deltas[-1]["delta"] == {}
    assert "\ufffd" not in "".join(events)


async def test_usage_only_when_asked(stack: Stack) -> None:
    stack.worker.script = lambda submit: say("hi")
    cases: list[dict[str, Any]] = [{}, {"stream_options": {}}, {"stream_options": None}, {"stream_options": {"include_usage": False}}]
    for options in cases:
        events = await stack.events("/v1/chat/completions", {**ASK, "stream": True, **options})
        assert all("usage" not in json.loads(event) for event in events[:-1])
    status, answer = await stack.post("/v1/chat/completions", {**ASK, "stream_options": {"include_usage": True}})
    assert (status, answer["error"]["param"]) == (400, "stream_options")


async def test_several_choices_keep_their_numbers(stack: Stack) -> None:
    stack.worker.script = lambda submit: say("abc")
    events = await stack.events("/v1/chat/completions", {**ASK, "stream": True, "n": 3, "temperature": 0})
    texts = {0: "", 1: "", 2: ""}
    for event in events[:-1]:
        for choice in json.loads(event)["choices"]:
            texts[choice["index"]] += choice["delta"].get("content", "")
    assert texts == {0: "abc", 1: "abc", 2: "abc"}
    [submit] = stack.worker.submits
    assert len({choice.seed for choice in submit.choices}) == 3


async def test_a_refused_stream_is_a_real_400(stack: Stack) -> None:
    boom, long = [{"role": "user", "content": "boom"}], [{"role": "user", "content": "x" * 5000}]
    status, answer = await stack.post("/v1/chat/completions", {**ASK, "messages": boom, "stream": True})
    assert (status, answer["error"]["message"]) == (400, "no boom here")
    status, answer = await stack.post("/v1/chat/completions", {**ASK, "messages": long, "stream": True})
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
    assert "4096" in answer["error"]["message"]
    assert "50" in answer["error"]["message"]


async def test_a_stop_token_is_no_text_unless_it_is_to_stay(stack: Stack) -> None:
    stack.worker.script = lambda submit: say("one", end=Finish("STOP", token_id=46, last=[46]))
    for change, text in (({}, "one"), ({"no_stop_trim": True}, "one.")):
        _, answer = await stack.post("/v1/chat/completions", {**ASK, "stop_token_ids": [46], **change})
        assert answer["choices"][0]["message"]["content"] == text
        assert answer["usage"]["completion_tokens"] == 4
        assert answer["choices"][0]["matched_stop"] == 46


async def test_stop_text_is_cut_by_the_workers_word(stack: Stack) -> None:
    end = Finish("STOP", stop_index=0, keep_bytes=len("one two "))
    stack.worker.script = lambda submit: say("one two three fo", end=end)
    events = await stack.events("/v1/chat/completions", {**ASK, "stream": True, "stop": ["three fo"]})
    deltas = [json.loads(event)["choices"][0] for event in events[:-1]]
    assert "".join(d["delta"].get("content", "") for d in deltas) == "one two "
    assert deltas[-1]["matched_stop"] == "three fo"
