"""Streams that remember every piece, so that a lost or repeated token shows."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import aiohttp


@dataclass(slots=True)
class Told:
    """What one request was told: its text piece by piece, or why it failed."""

    prompt: str
    text: str = ""
    wrong: str = ""
    resumes: int = 0
    completion_tokens: int = 0


def body_of(prompt: str, tokens: int, seed: int | None) -> dict[str, Any]:
    """Greedy without a seed, sampled with one."""
    sampling: dict[str, Any] = {"max_new_tokens": tokens, "ignore_eos": True, "temperature": 0.0 if seed is None else 1.0}
    if seed is not None:
        sampling["sampling_seed"] = seed
    return {"text": prompt, "sampling_params": sampling, "stream": True}


async def ask(session: aiohttp.ClientSession, url: str, prompt: str, tokens: int, seed: int | None = None) -> Told:
    """One streamed native request. Each event's text must begin with the one before it."""
    told = Told(prompt)
    finished = False
    try:
        async with session.post(f"{url}/generate", json=body_of(prompt, tokens, seed)) as answer:
            if answer.status != 200:
                told.wrong = f"status {answer.status}: {(await answer.text())[:300]}"
                return told
            async for line in answer.content:
                if not line.startswith(b"data:") or line.strip() == b"data: [DONE]":
                    continue
                event = json.loads(line[5:])
                if "error" in event:
                    told.wrong = f"in the stream: {event['error']}"
                    return told
                if not event["text"].startswith(told.text):
                    told.wrong = f"{event['text'][-40:]!r} does not continue {told.text[-40:]!r}"
                    return told
                told.text = event["text"]
                meta = event["meta_info"]
                finished = meta.get("finish_reason") is not None
                told.resumes, told.completion_tokens = meta.get("resumes", 0), meta["completion_tokens"]
    except (aiohttp.ClientError, OSError) as error:
        told.wrong = f"{type(error).__name__}: {error}"
    if not finished and not told.wrong:
        told.wrong = "the stream ended without a finish"
    if finished and told.completion_tokens != tokens:
        told.wrong = f"{told.completion_tokens} tokens in place of {tokens}"
    return told


@dataclass
class Load:
    """`streams` clients that ask one request after another, over a fixed set of prompts whose answers are known."""

    url: str
    streams: int
    tokens: int
    prompts: tuple[str, ...]

    def seed(self, prompt: str) -> int | None:
        """Every other prompt is sampled with a seed of its own."""
        number = self.prompts.index(prompt)
        return number if number % 2 else None

    async def reference(self) -> dict[str, str]:
        """The text of every prompt, undisturbed."""
        async with aiohttp.ClientSession() as session:
            told = await asyncio.gather(*(ask(session, self.url, p, self.tokens, self.seed(p)) for p in self.prompts))
        assert not [one.wrong for one in told if one.wrong], told
        return {one.prompt: one.text for one in told}

    async def run(self, until: asyncio.Event) -> list[Told]:
        """Ask until the event is set; all that was begun is waited for."""
        told: list[Told] = []

        async def client(number: int) -> None:
            connector = aiohttp.TCPConnector(limit=1)
            async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=180)) as session:
                turn = number
                while not until.is_set():
                    prompt = self.prompts[turn % len(self.prompts)]
                    told.append(await ask(session, self.url, prompt, self.tokens, self.seed(prompt)))
                    turn += 7

        await asyncio.gather(*(client(i) for i in range(self.streams)))
        return told


def verdict(told: list[Told], reference: dict[str, str]) -> list[str]:
    """Everything that is not as it must be."""
    wrong = [one.wrong for one in told if one.wrong]
    wrong += [
        f"another text for {one.prompt!r} after {one.resumes} resumes"
        for one in told
        if not one.wrong and one.text != reference[one.prompt]
    ]
    return wrong
