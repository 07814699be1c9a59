"""What a client sees of a machine with more work than memory: retractions, refusals, and why each was decided."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.e2e.launched import launched

GREEDY = {"temperature": 0, "ignore_eos": True, "stop_token_ids": [49_151]}  # it might stop early, so its budget is not reserved in full


def prompt(number: int, length: int) -> list[int]:
    return random.Random(number).choices(range(100, 40_000), k=length)


def test_more_work_than_memory_is_seen_and_explained() -> None:
    """Four answers of 60 tokens beside prompts of 20 need 320 slots; 200 are there, and admission is told to expect little."""
    with launched("--max-total-tokens", "200", "--init-new-token-ratio", "0.01") as suite, ThreadPoolExecutor(4) as pool:

        def ask(number: int) -> dict[str, Any]:
            return suite.generate(input_ids=prompt(number, 20), sampling_params={**GREEDY, "max_new_tokens": 60})

        metas = [answer["meta_info"] for answer in pool.map(ask, range(4))]
        worker = suite.client.get("/server_info", params={"decisions": 500}).json()["workers"][0]
        decisions = worker["decisions"]
        endless = suite.client.post("/generate", json={"input_ids": prompt(9, 20), "sampling_params": {**GREEDY, "max_new_tokens": 500}})
        longer = suite.client.post("/generate", json={"input_ids": prompt(8, 300), "sampling_params": GREEDY})
        after = ask(5)["meta_info"]
    assert sum(meta["num_retractions"] for meta in metas) >= 1
    assert all(meta["completion_tokens"] == 60 and meta["queue_time"] >= 0 for meta in metas)
    assert worker["load"]["new_token_ratio"] > 0
    assert {decision["kind"] for decision in decisions} >= {"admit", "retract", "finish"}
    retracted = next(decision for decision in decisions if decision["kind"] == "retract")
    assert retracted["reason"] == "kv_pool" and retracted["request_id"] and retracted["output_tokens"] > 0
    for refused, words in ((endless, "520 were requested"), (longer, "KV pool")):
        assert refused.status_code == 400 and words in refused.json()["error"]["message"], refused.text
        assert refused.json()["error"]["code"] == "context_length_exceeded"
    assert after["completion_tokens"] == 60
