"""The load of a soak: completions whose length is drawn and known, some of whose clients go away."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from headrace.bench.http_stream import BadAnswer, Connection, Pool, post
from headrace.bench.sse import EventReader

_PATH = "/v1/completions"
_PROMPT_TOKENS = (32, 384)
_TOKEN_IDS = (1000, 30000)
_SHARED_PREFIX_TOKENS = 192
_SHARED_PREFIXES = 8
_SHARED_SHARE = 0.4  # of all prompts begin with one of the shared prefixes
_SAMPLED_SHARE = 0.5  # are not greedy
_LOGPROB_SHARE = 0.1
_IMPATIENT_SHARE = 0.03  # of all clients leave in mid-stream
_OUTPUT_SHARE = (0.1, 0.6)  # of max_new_tokens
_TIMEOUT_S = 900.0


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: `length` is how many tokens its answer will have, far below the `max_tokens` it may have."""

    body: dict[str, Any]
    length: int
    leaves_after: int | None  # chunks an impatient client waits for


class Asks:
    """Draws requests. An answer ends where it is told to: the end token is barred before `length` and forced there."""

    def __init__(self, model: str, eos_id: int, max_new_tokens: int, seed: int) -> None:
        self._draw = random.Random(seed)
        self._model, self._eos, self._most = model, eos_id, max_new_tokens
        self._prefixes = [self._ids(_SHARED_PREFIX_TOKENS) for _ in range(_SHARED_PREFIXES)]

    @property
    def mean_length(self) -> float:
        """Tokens of an answer on average."""
        return self._most * sum(_OUTPUT_SHARE) / 2

    def next(self) -> Ask:
        """The next request."""
        draw = self._draw
        prompt = self._ids(draw.randint(*_PROMPT_TOKENS))
        if draw.random() < _SHARED_SHARE:
            prompt = draw.choice(self._prefixes) + prompt
        length = max(2, round(draw.uniform(*_OUTPUT_SHARE) * self._most))
        body: dict[str, Any] = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": self._most,
            "min_tokens": length - 1,
            "logit_bias": {str(self._eos): 100},
            "temperature": 0.8 if draw.random() < _SAMPLED_SHARE else 0,
            "seed": draw.getrandbits(31),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if draw.random() < _LOGPROB_SHARE:
            body["logprobs"] = 2
        leaves_after = draw.randint(1, max(1, length // 2)) if draw.random() < _IMPATIENT_SHARE else None
        return Ask(body, length, leaves_after)

    def _ids(self, count: int) -> list[int]:
        return [self._draw.randint(*_TOKEN_IDS) for _ in range(count)]


@dataclass
class Tally:
    """How requests ended: every one in exactly one way."""

    sent: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    output_tokens: int = 0
    examples: dict[str, str] = field(default_factory=dict)  # what the first of a bad kind said

    def note(self, how: str, detail: str = "") -> None:
        """Count an ending; `complete`, `refused` and `left` are the good ones."""
        self.ended[how] += 1
        if detail:
            self.examples.setdefault(how, detail[:300])

    @property
    def lost(self) -> int:
        """Requests that got no proper end: an error, a cut stream, a wrong length, or nothing at all."""
        return self.sent - self.ended["complete"] - self.ended["refused"] - self.ended["left"]


class Load:
    """Sends requests to one REST door."""

    def __init__(self, url: str, asks: Asks) -> None:
        self._pool = Pool(url)
        self._asks = asks

    async def closed(self, streams: int, seconds: float) -> Tally:
        """`streams` clients that ask again as soon as they are answered; what was under way at the end counts too."""
        tally, until = Tally(), asyncio.get_running_loop().time() + seconds

        async def client() -> None:
            while asyncio.get_running_loop().time() < until:
                await self._send(self._asks.next(), tally)

        await asyncio.gather(*(client() for _ in range(streams)))
        return tally

    async def open(self, rate: float, seconds: float, tally: Tally, seed: int) -> None:
        """A Poisson process of `rate` requests a second; returns when the last has ended."""
        draw, loop = random.Random(seed), asyncio.get_running_loop()
        due, until = loop.time(), loop.time() + seconds
        async with asyncio.TaskGroup() as group:
            while due < until:
                await asyncio.sleep(max(0.0, due - loop.time()))
                group.create_task(self._send(self._asks.next(), tally))
                due += draw.expovariate(rate)

    def close(self) -> None:
        """Close idle connections."""
        self._pool.close()

    async def _send(self, ask: Ask, tally: Tally) -> None:
        tally.sent += 1
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await self._exchange(ask, tally)
        except TimeoutError:
            tally.note("timeout", f"no end after {_TIMEOUT_S:g} s")
        except (BadAnswer, OSError) as error:
            tally.note("broken", repr(error))

    async def _exchange(self, ask: Ask, tally: Tally) -> None:
        connection = await self._pool.take()
        reader, plain = EventReader(lambda event: b'"usage":null' in event or b'"usage"' not in event), bytearray()
        exchange = asyncio.ensure_future(
            connection.exchange(
                post(f"{self._pool.host}:{self._pool.port}", _PATH, json.dumps(ask.body).encode(), {}),
                lambda data, now: reader.feed(data, now) if connection.status == 200 else plain.extend(data),
            )
        )
        try:
            if ask.leaves_after is not None and await _leaves(exchange, reader, ask.leaves_after):
                connection.close()
                tally.note("left")
                return
            status = await exchange
        finally:
            await _give_back(self._pool, connection, exchange)
        self._judge(status, reader, bytes(plain), ask, tally)

    @staticmethod
    def _judge(status: int, reader: EventReader, plain: bytes, ask: Ask, tally: Tally) -> None:
        if status == 429:
            tally.note("refused")
        elif status != 200:
            tally.note(f"HTTP {status}", plain.decode(errors="replace"))
        elif reader.failed is not None:
            tally.note("error in stream", reader.failed.decode(errors="replace"))
        else:
            judge_whole(reader, ask, tally)


def judge_whole(reader: EventReader, ask: Ask, tally: Tally) -> None:
    """A stream that ended: it must say why, and have the length it was told to have."""
    finish, tokens = "", 0
    for event in reader.events[-3:]:
        said = json.loads(event[5:])
        tokens = (said.get("usage") or {}).get("completion_tokens", tokens)
        finish = next((choice["finish_reason"] for choice in said["choices"] if choice["finish_reason"]), finish)
    tally.output_tokens += tokens
    if reader.saw_done and finish == "stop" and tokens == ask.length:
        tally.note("complete")
    else:
        tally.note("wrong end", f"{finish!r} after {tokens} tokens, {ask.length} were due; done: {reader.saw_done}")


async def _leaves(exchange: asyncio.Future[int], reader: EventReader, chunks: int) -> bool:
    """Wait for so many chunks; whether the client leaves before the answer's own end."""
    while len(reader.times) < chunks and not exchange.done():
        await asyncio.wait({exchange}, timeout=0.05)
    return not exchange.done()


async def _give_back(pool: Pool, connection: Connection, exchange: asyncio.Future[int]) -> None:
    if not exchange.done():
        connection.close()
    pool.put(connection)
    await asyncio.gather(exchange, return_exceptions=True)
