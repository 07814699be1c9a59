"""A stream begins with its first event: clients exist that trim every read, and lose what follows a comment."""

from __future__ import annotations

import asyncio

from tests.fakes.script import Emit, Finish, Wait
from tests.fakes.stack import Stack


async def test_headers_come_alone_before_the_first_token(stack: Stack) -> None:
    first = asyncio.Event()
    stack.worker.script = lambda submit: [Wait(event=first), Emit([97]), Finish("LENGTH")]
    async with stack.http.post(stack.url + "/v1/completions", json={"prompt": "x", "stream": True}) as answer:
        assert answer.status == 200  # accepted; no token yet
        first.set()
        assert (await answer.content.readany()).startswith(b"data: {")
        await answer.read()
