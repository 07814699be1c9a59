"""Concurrent calls share encodes, get their own ids, and long texts do not hold up short ones."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from services.common.errors import Internal, Overloaded
from services.tokenizer.batcher import LONG_TEXT_CHARACTERS, Batcher, BatchPolicy


class LengthTokenizer:
    """Ids are code points; a gate can hold encodes of a given text back."""

    def __init__(self) -> None:
        self.gates: dict[str, threading.Event] = {}

    def encode_batch(self, texts: Sequence[str], *, add_special: bool) -> list[list[int]]:
        for text in texts:
            if text in self.gates:
                self.gates[text].wait(10)
            if text == "boom":
                raise ValueError("boom")
        return [[*([1] if add_special else []), *map(ord, text)] for text in texts]

    def token_id(self, token: str) -> int | None:
        return None


def _batcher(tokenizer: LengthTokenizer, *, size: int = 32, wait_s: float = 0.0, queued: int = 10_000) -> Batcher:
    return Batcher(tokenizer, BatchPolicy(size, wait_s), long_threads=1, max_queued_texts=queued)


@pytest.mark.parametrize("wait_s", [0.0, 0.002])
async def test_500_concurrent_calls_cost_few_encodes(wait_s: float) -> None:
    batcher = _batcher(LengthTokenizer(), wait_s=wait_s)
    texts = [f"prompt {index}" for index in range(500)]
    special = [index % 3 == 0 for index in range(500)]
    results = await asyncio.gather(*(batcher.encode([t, "x"], add_special=s) for t, s in zip(texts, special, strict=True)))
    assert results == [[[*([1] if s else []), *map(ord, t)], [*([1] if s else []), ord("x")]] for t, s in zip(texts, special, strict=True)]
    assert batcher.encode_calls <= 500 / 5
    assert batcher.queued_texts == 0
    batcher.close()


async def test_one_by_one_when_merging_is_off() -> None:
    batcher = _batcher(LengthTokenizer(), size=1)
    await asyncio.gather(*(batcher.encode(["a"], add_special=False) for _ in range(20)))
    assert batcher.encode_calls == 20
    batcher.close()


async def test_a_long_text_holds_up_nobody() -> None:
    tokenizer = LengthTokenizer()
    long_text = "x" * (LONG_TEXT_CHARACTERS + 1)
    tokenizer.gates[long_text] = threading.Event()
    batcher = _batcher(tokenizer)
    long_call = asyncio.create_task(batcher.encode([long_text], add_special=False))
    await asyncio.sleep(0)
    for _ in range(20):
        assert await batcher.encode(["short"], add_special=False) == [list(map(ord, "short"))]
    assert not long_call.done()
    tokenizer.gates[long_text].set()
    assert len((await long_call)[0]) == len(long_text)
    batcher.close()


async def test_a_full_queue_refuses_and_a_cancelled_call_is_skipped() -> None:
    tokenizer = LengthTokenizer()
    tokenizer.gates["gate"] = threading.Event()
    batcher = _batcher(tokenizer, queued=3)
    held = asyncio.create_task(batcher.encode(["gate"], add_special=False))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(batcher.encode(["a", "b"], add_special=False))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="--max-queued-texts"):
        await batcher.encode(["c"], add_special=False)
    waiting.cancel()
    await asyncio.sleep(0)
    later = asyncio.create_task(batcher.encode(["c"], add_special=False))
    await asyncio.sleep(0)
    tokenizer.gates["gate"].set()
    assert await held
    assert await later == [[ord("c")]]
    assert batcher.queued_texts == 0
    batcher.close()


async def test_a_failing_encode_fails_its_callers_and_the_lane_goes_on() -> None:
    batcher = _batcher(LengthTokenizer())
    with pytest.raises(Internal, match="boom"):
        await batcher.encode(["boom"], add_special=False)
    assert await batcher.encode(["ok"], add_special=False)
    assert await batcher.encode([], add_special=True) == []
    batcher.close()
