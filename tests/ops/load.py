"""Clients that check every answer to the letter while the suite is disturbed."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import aiohttp

from tests.helm.processes import Pod
from tests.helm.scripted import expected


@dataclass(slots=True)
class Answer:
    """One finished request. `wrong` is empty for the right text, complete, with status 200."""

    status: int
    text: str
    wrong: str = ""
    resumes: int = 0


async def stream(session: aiohttp.ClientSession, url: str, tokens: int, prompt: str = "hi", *, ignore_eos: bool = True) -> Answer:
    """One streamed native request of exactly so many tokens. Without `ignore_eos` a worker reserves less for it."""
    body = {"text": prompt, "stream": True, "sampling_params": {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": ignore_eos}}
    text, finish, resumes = "", None, 0
    try:
        async with session.post(f"{url}/generate", json=body) as response:
            if response.status != 200:
                return Answer(response.status, "", f"status {response.status}: {(await response.text())[:300]}")
            async for line in response.content:
                if not line.startswith(b"data:") or line.strip() == b"data: [DONE]":
                    continue
                event = json.loads(line[5:])
                if "error" in event:
                    return Answer(200, text, f"error in the stream: {event['error']}")
                text, meta = event["text"], event["meta_info"]
                finish, resumes = meta["finish_reason"], meta.get("resumes", 0)
    except (aiohttp.ClientError, OSError) as error:
        return Answer(0, text, f"{type(error).__name__}: {error}")
    if finish is None:
        return Answer(200, text, "the stream ended without a finish")
    return Answer(200, text, "" if text == expected(tokens) else f"wrong text of {len(text)} letters", resumes)


def url_of(gateway: Pod) -> str:
    """Base address of a gateway's REST door."""
    return f"http://127.0.0.1:{gateway.config['port']}"


@dataclass
class Load:
    """Some clients that ask again and again, each time the next gateway that takes new connections, as a Service would send them."""

    gateways: Callable[[], Sequence[Pod]]
    clients: int = 6
    tokens: int = 150
    answers: list[Answer] = field(default_factory=list)

    async def run(self, until: asyncio.Event) -> None:
        """Ask until the event is set; every answer begun is waited for."""
        turn = itertools.count()

        async def client() -> None:
            connector = aiohttp.TCPConnector(force_close=True)
            async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120)) as session:
                while not until.is_set():
                    ready = self.gateways()
                    number = next(turn)
                    self.answers.append(await stream(session, url_of(ready[number % len(ready)]), self.tokens, f"prompt {number}"))

        await asyncio.gather(*(client() for _ in range(self.clients)))

    @property
    def failures(self) -> list[str]:
        """What went wrong, request by request."""
        return [answer.wrong for answer in self.answers if answer.wrong]
