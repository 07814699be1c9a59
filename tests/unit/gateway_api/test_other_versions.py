"""A worker of another protocol version is flagged and not used; the same address is used once it speaks ours."""

from __future__ import annotations

import pytest

from services.common.version import PROTOCOL
from tests.fakes.fake_worker import FakeWorker
from tests.fakes.stack import Stack, until


async def test_a_worker_of_another_version_is_flagged_and_not_used(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger = FakeWorker()
    welcome = stranger._welcome
    versions = iter([PROTOCOL + 1] * 3)

    def other() -> object:
        made = welcome()
        made.protocol = next(versions, PROTOCOL)
        return made

    monkeypatch.setattr(stranger, "_welcome", other)
    address = await stranger.start()
    try:
        status, _ = await stack.post("/workers", {"url": address})
        assert status == 201
        worker = stack.app.parts.registry.find(address)
        await until(lambda: worker.state == "failed")
        _, shown = await stack.get(f"/workers/{address}")
        assert f"speaks protocol {PROTOCOL + 1}, this gateway {PROTOCOL}" in shown["state_reason"]
        assert (await stack.post("/v1/completions", {"prompt": "x", "max_tokens": 1}))[0] == 200
        assert stranger.runs == []
        await until(lambda: worker.is_ready, 10)
    finally:
        await stranger.stop()
