"""The load generator at our own doors: a real gateway, with a worker that only plays tokens."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.bench.config import BenchConfig
from headrace.bench.measure import measure
from headrace.bench.report import headline
from tests.fakes.stack import running


@pytest.mark.parametrize("backend", ["native", "openai", "openai-chat", "grpc"])
async def test_every_door_counts_alike(backend: str) -> None:
    async with running() as stack:
        address = f"127.0.0.1:{stack.app.host.port}" if backend == "grpc" else stack.url
        more: dict[str, Any] = {"dataset_name": "conversations", "turns": 1} if backend == "openai-chat" else {"random_id_range": "10:200"}
        config = BenchConfig(
            backend=backend,
            base_url=address,
            port=stack.app.port,
            num_prompts=6,
            max_concurrency=3,
            random_input_len=20,
            random_output_len=5,
            **more,
        )
        done = await measure(config)
    found = done.summary
    assert found.failures == {}
    assert (found.succeeded, found.output_tokens) == (6, 30)
    assert found.streamed_chunks <= 30  # tokens that came together are one chunk
    assert found.input_lengths.least > 0 if backend == "openai-chat" else found.input_tokens == 120
    assert found.cached_tokens is not None
    assert 0 < found.ttft.median <= found.e2e.median
    assert headline(found, done.about).startswith(f"{found.output_rate:.1f} output tok/s at a cap of 3")
