"""A seeded answer with penalties and logprobs that a dead worker had begun is the undisturbed one, token by token."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fleet.fleet import Fleet
from tests.fleet.test_embedded_model import settings

pytestmark = [pytest.mark.model, pytest.mark.slow]

TOKENS, CUT = 64, 20
BODY: dict[str, Any] = {
    "text": "Tell me a story with all its numbers",
    "stream": True,
    "return_logprob": True,
    "top_logprobs_num": 3,
    "sampling_params": {
        "max_new_tokens": TOKENS,
        "ignore_eos": True,
        "temperature": 1.0,
        "sampling_seed": 11,
        "frequency_penalty": 0.6,
        "presence_penalty": 0.3,
    },
}


async def last_event(fleet: Fleet, *, kill: bool, **sampling: float) -> dict[str, Any]:
    """The final event of the stream; with `kill`, its worker dies after CUT tokens. `sampling` in place of the body's own."""
    body = BODY | {"sampling_params": BODY["sampling_params"] | sampling}
    killed, last = False, {}
    async with aiohttp.ClientSession() as session, session.post(f"{fleet.url}/generate", json=body) as answer:
        assert answer.status == 200, await answer.text()
        async for line in answer.content:
            if not line.startswith(b"data: {"):
                continue
            last = json.loads(line[6:])
            if kill and not killed and last["meta_info"]["completion_tokens"] >= CUT:
                killed = True
                async with aiohttp.ClientSession() as other:
                    (owner,) = [worker["url"] for worker in await fleet.shown(other) if worker["in_flight"]]
                await asyncio.to_thread(fleet.member_at(owner).kill)
    assert killed == kill
    return last


async def test_seed_penalties_and_logprobs_go_on_where_the_dead_worker_stopped(tmp_path: Path) -> None:
    async with Fleet(tmp_path, settings(), workers=2).running(180) as fleet:
        calm = await last_event(fleet, kill=False)
        bare = await last_event(fleet, kill=False, frequency_penalty=0.0, presence_penalty=0.0)
        assert bare["text"] != calm["text"], "penalties count in this answer"
        hurt = await last_event(fleet, kill=True)
        assert (calm["meta_info"]["resumes"], hurt["meta_info"]["resumes"]) == (0, 1)
        assert hurt["text"] == calm["text"]
        rows = [event["meta_info"]["output_token_logprobs"] for event in (calm, hurt)]
        assert [row[1] for row in rows[0]] == [row[1] for row in rows[1]]
        assert [row[0] for row in rows[0]] == pytest.approx([row[0] for row in rows[1]])
        assert len(rows[1]) == TOKENS
        tops = [event["meta_info"]["output_top_logprobs"] for event in (calm, hurt)]
        assert [[alternative[1] for alternative in row] for row in tops[0]] == [[alternative[1] for alternative in row] for row in tops[1]]
