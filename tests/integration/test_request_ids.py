"""One id joins the logs of all services, and what clients write into it cannot forge a line."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import aiohttp

from tests.fakes.stack import until
from tests.fleet.fleet import Fleet, Member
from tests.helm.scripted import write_model


def has_line(member: Member, text: str) -> bool:
    return text in member.log


async def test_a_request_is_found_by_its_id_in_every_log(tmp_path: Path) -> None:
    settings = write_model(tmp_path / "model")
    for kind in ("tokenizer", "detokenizer", "worker", "gateway"):
        settings[kind] = {**settings[kind], "log_level": "debug"}
    async with Fleet(tmp_path, settings, workers=1).running() as fleet, aiohttp.ClientSession() as session:
        body = {"text": "hi", "sampling_params": {"max_new_tokens": 2}}
        async with session.post(f"{fleet.url}/generate", json=body, headers={"x-request-id": "joined-7"}) as answer:
            assert (answer.status, answer.headers["x-request-id"]) == (200, "joined-7")
        async with session.post(f"{fleet.url}/generate", json=body, headers={"x-request-id": "a status=200 forged=1"}) as answer:
            assert answer.status == 200
            made = answer.headers["x-request-id"]
        for member in fleet.members:
            await until(partial(has_line, member, f"request_id={made}"), 10)
            assert "request_id=joined-7" in member.log, member.name
            assert "forged" not in member.log, member.name
