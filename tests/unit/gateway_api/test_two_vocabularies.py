"""Two models of different vocabularies behind one gateway: each prompt, text and logprob goes through the services of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.clients.text_stage import TextPool
from services.common.text.token_bytes import TokenBytes
from tests.fakes import byte_vocabulary as vocabulary
from tests.fakes.detokenizer_server import DetokenizerServer
from tests.fakes.fake_tokenizer import FakeTokenizer
from tests.fakes.fake_worker import FakeWorker
from tests.fakes.script import Finish, Logprobs
from tests.fakes.stack import Stack, running, until

OTHER = "swapped-case"


def swapped_ids(text: str) -> list[int]:
    return vocabulary.ids(text.swapcase())


def swapped_bytes() -> TokenBytes:
    special = frozenset(vocabulary.SPECIAL.values())
    pieces = [bytes([token]).swapcase() if token < 256 else b"" for token in range(vocabulary.VOCAB)]
    return TokenBytes(pieces, special_ids=special, added_ids=special)


@contextlib.asynccontextmanager
async def two_models(**settings: Any) -> AsyncIterator[Stack]:
    tokenizers = [FakeTokenizer(), FakeTokenizer("other", swapped_ids, OTHER)]
    detokenizers = [DetokenizerServer(), DetokenizerServer(swapped_bytes(), OTHER)]
    workers = [FakeWorker(), FakeWorker("other", digest="other-model", tokens=OTHER)]
    addresses = tuple([await one.start() for one in tokenizers]), tuple([await one.start() for one in detokenizers])
    try:
        async with running(workers, tokenizer=addresses[0], detokenizer=addresses[1], **settings) as stack:
            text: TextPool = stack.app.parts.text
            await until(lambda: all(session.connected for session in text.sessions))
            yield stack
    finally:
        await asyncio.gather(*(one.stop() for one in tokenizers), *(one.stop() for one in detokenizers))


@pytest.fixture
async def pair() -> AsyncIterator[Stack]:
    async with two_models() as stack:
        yield stack


async def test_each_model_reads_and_writes_with_its_own(pair: Stack) -> None:
    for number in range(6):
        prompt = f"Same Text {number}"
        _, plain = await pair.post("/v1/completions", {"model": "fake", "prompt": prompt, "max_tokens": 8})
        _, other = await pair.post("/v1/completions", {"model": "other", "prompt": prompt, "max_tokens": 8})
        assert (plain["model"], other["model"]) == ("fake", "other")
        assert plain["choices"][0]["text"].islower()
        assert other["choices"][0]["text"].isupper()
    first, second = (bytes(worker.submits[-1].prompt.token_ids).decode() for worker in pair.workers)
    assert (first, second) == (prompt, prompt.swapcase())
    for model, text, ids in (("fake", "aB", [97, 66]), ("other", "aB", [65, 98])):
        assert (await pair.post("/tokenize", {"model": model, "prompt": text}))[1]["tokens"] == ids
    events = await pair.events("/v1/chat/completions", {"model": "other", "messages": [{"role": "user", "content": "x"}], "stream": True})
    assert len(events) > 3


async def test_the_texts_of_logprobs_are_the_models_own(pair: Stack) -> None:
    for worker in pair.workers:
        worker.script = lambda submit: [Logprobs(97, -0.5, [(97, -0.5), (98, -1.5)]), Finish("LENGTH")]
    for model, expected in (("fake", "a"), ("other", "A"), ("fake", "a")):
        body = {"model": model, "prompt": "x", "max_tokens": 1, "logprobs": 1}
        _, answer = await pair.post("/v1/completions", body)
        assert answer["choices"][0]["logprobs"]["tokens"] == [expected]


async def test_a_tokenizer_that_comes_back_as_another_is_not_believed() -> None:
    """Its address now serves the other vocabulary: prompts of the first model must not be read with it."""
    tokenizer = FakeTokenizer()
    address = await tokenizer.start()
    async with running(tokenizer=(address,), hold_secs=1.5) as stack:
        ask = {"prompt": "Abc", "max_tokens": 2}
        assert (await stack.post("/v1/completions", ask))[0] == 200
        await tokenizer.stop()
        port = int(address.rpartition(":")[2])
        stranger = FakeTokenizer("other", swapped_ids, OTHER)
        await stranger.start(port)
        status, answer = await stack.post("/v1/completions", ask)
        assert (status, answer["error"]["code"]) == (503, "no_tokenizer"), answer
        assert vocabulary.DIGEST in answer["error"]["message"]
        assert len(stack.worker.submits) == 1
        await stranger.stop()
        await tokenizer.start(port)
        await until(lambda: stack.app.parts.tokenizer.reached)
        assert (await stack.post("/v1/completions", ask))[0] == 200
        assert bytes(stack.worker.submits[-1].prompt.token_ids) == b"Abc"
    await tokenizer.stop()
