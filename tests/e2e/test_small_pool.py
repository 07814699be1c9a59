"""A pool of 4,096 tokens under more work than it holds."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.e2e.launched import launched


def test_exactly_five_run_at_a_time_and_none_is_retracted() -> None:
    draw = random.Random(3)
    prompts = [draw.choices(range(100, 40_000), k=256) for _ in range(16)]
    sampling = {"temperature": 0, "max_new_tokens": 512, "ignore_eos": True}
    with launched("--max-total-tokens", "4096") as suite, ThreadPoolExecutor(16) as pool:

        def ask(ids: list[int]) -> dict[str, Any]:
            meta: dict[str, Any] = suite.generate(input_ids=ids, sampling_params=sampling)["meta_info"]
            return meta

        asked = [pool.submit(ask, ids) for ids in prompts]
        most = 0
        while not all(one.done() for one in asked):
            most = max(most, suite.loads()["running"])
            time.sleep(0.1)
        metas = [one.result() for one in asked]
        load = suite.wait_idle()
    assert most == 5
    assert {meta["completion_tokens"] for meta in metas} == {512}
    assert {meta["finish_reason"]["type"] for meta in metas} == {"length"}
    assert sum(meta["num_retractions"] for meta in metas) == 0
    assert load["kv_total_tokens"] == 4096
    assert load["kv_used_tokens"] == 0
