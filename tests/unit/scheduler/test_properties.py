"""Random requests under random pressure: nothing is lost, no slot leaks, and the text is that of an undisturbed run."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.cache.eviction import EVICTION_POLICIES
from services.scheduler.core.messages import ChoiceSpec, FinishReason, StopSpec, SubmitRequest
from services.scheduler.core.plan import IntArray, SamplingSpec
from services.scheduler.core.policy import POLICIES
from services.scheduler.engine.script import Failure, Script
from tests.unit.scheduler.harness import Driver, prompt

VOCAB, CONTEXT = 64, 256


@dataclass(frozen=True)
class Request:
    """One request and what happens after it was submitted."""

    tokens: IntArray
    max_new: int
    fields: dict[str, Any]
    turns: int
    cancels: bool


def workload(random: Random, count: int, longest: int) -> list[Request]:
    """Prompts with common beginnings, random budgets, stops, intervals and logprobs."""
    common = [prompt(random.randrange(1, 100), number, VOCAB) for number in range(4)]
    made = []
    for _ in range(count):
        shared = random.choice(common)[: random.randrange(60)]
        tokens = np.concatenate([shared, prompt(random.randrange(1, 40), random.randrange(6), VOCAB)])[:longest]
        fields = {
            "ignore_eos": random.random() < 0.5,
            "token_ids": (5,) if random.random() < 0.2 else (),
            "stream_interval": random.choice([1, 1, 3]),
            "prompt_logprobs_from": random.choice([None] * 5 + [0, 10]),
            "sampling": SamplingSpec(temperature=0.0, logprobs=random.random() < 0.2),
            "priority": random.choice([0, 0, 20]),
        }
        made.append(Request(tokens, random.randrange(60), fields, random.randrange(6), random.random() < 0.1))
    return made


def configuration(random: Random) -> dict[str, Any]:
    config: dict[str, Any] = {
        "page": random.choice([1, 1, 4, 16]),
        "pool": random.choice([200, 400, 1500]),
        "rows": random.choice([4, 16]),
        "chunked_prefill_size": random.choice([-1, 8, 32, 64]),
        "schedule_policy": random.choice(POLICIES),
        "enable_mixed_chunk": random.random() < 0.5,
        "disable_radix_cache": random.random() < 0.2,
        "prefill_decode_interval": random.choice([0, 0, 2]),
        "radix_eviction_policy": random.choice(EVICTION_POLICIES),
        "init_new_token_ratio": random.choice([0.02, 0.7]),
        "retraction_policy": random.choice(["length", "priority"]),
        "in_round_prefix_sharing": random.choice([None, True]),
        "itl_target_ms": random.choice([None, 50.0]),
        "num_continuous_decode_steps": random.choice([1, 1, 3]),
        "strip_thinking_cache": random.random() < 0.2,
    }
    if config["schedule_policy"] in ("fcfs", "lof"):
        config["enable_priority_scheduling"] = random.random() < 0.5
    return config


def play(script: Script, requests: list[Request], config: dict[str, Any], seed: int) -> Driver:
    random = Random(seed)
    driver = Driver(script, **config)
    for request in requests:
        driver.submit(request.tokens, request.max_new, **request.fields)
        for _ in range(request.turns):
            driver.turn()
        if request.cancels:  # whether that one still runs does not decide who is chosen: runs can be compared
            driver.scheduler.cancel(len(driver.said) - random.randrange(6))
    driver.run()
    return driver


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1 << 30), overlap=st.booleans(), failures=st.lists(st.integers(1, 300), max_size=4))
def test_any_workload_ends_with_every_slot_back(seed: int, overlap: bool, failures: list[int]) -> None:
    """The driver checks positions, single finals, slot contents and the pool's books in every turn."""
    random = Random(seed)
    config = configuration(random)
    requests = workload(random, 20, config["pool"] - 2 * config["page"] - 1)
    script = Script("scripted", VOCAB, CONTEXT, (3,), failures=tuple(Failure(launch) for launch in failures))
    driver = play(script, requests, {**config, "disable_overlap_schedule": not overlap}, seed)
    check_against_undisturbed(driver, requests)
    assert driver.scheduler.flush_cache() is not None
    assert driver.scheduler.load().kv_free_tokens == driver.scheduler.load().kv_total_tokens


def check_against_undisturbed(driver: Driver, requests: list[Request]) -> None:
    """Each output is what the request would get alone in a large pool, or a beginning of it if it was ended early."""
    alone = Driver(Script("scripted", VOCAB, CONTEXT, (3,)), pool=2000, rows=1, check=False, disable_radix_cache=True)
    for request in requests:
        alone.submit(request.tokens, request.max_new, **{**request.fields, "priority": None})
    alone.run()
    for handle, request in enumerate(requests, 1):
        final = driver.final(handle)
        if final.reason in (FinishReason.STOP, FinishReason.LENGTH):
            assert driver.tokens(handle) == alone.tokens(handle)
            assert final.reason is alone.final(handle).reason
            wanted = request.fields["prompt_logprobs_from"]
            if wanted is not None:
                parts = driver.said[handle].prompt_logprobs
                assert sum(len(part.logprobs) for part in parts) == max(request.tokens.size - max(wanted, 1), 0)
                assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
        else:
            assert driver.tokens(handle) == alone.tokens(handle)[: len(driver.tokens(handle))]
        if request.fields["sampling"].logprobs:
            assert len(driver.said[handle].logprobs) == len(driver.tokens(handle))
        assert final.usage.cached_tokens <= final.usage.prompt_tokens


@pytest.mark.parametrize("seed", range(2))
def test_overlap_changes_no_output(seed: int) -> None:
    """200 requests with stops, limits, aborts and retractions, with and without overlap.

    An abort may find its request a token further in one of the runs; what both have of it is the same.
    """
    requests = workload(Random(seed), 200, 300)
    config: dict[str, Any] = {"pool": 300, "rows": 16, "init_new_token_ratio": 0.02, "check": False, "chunked_prefill_size": 32}
    script = Script("scripted", VOCAB, CONTEXT, (3,))
    off = play(script, requests, config, seed)
    on = play(script, requests, {**config, "disable_overlap_schedule": False}, seed)
    aborted = 0
    for handle in off.said:
        first, second = on.final(handle), off.final(handle)
        if FinishReason.ABORT in (first.reason, second.reason):
            aborted += 1
            length = min(first.end_position, second.end_position)
            assert on.tokens(handle)[:length] == off.tokens(handle)[:length]
            continue
        assert on.tokens(handle) == off.tokens(handle)
        assert (first.reason, first.matched, first.end_position) == (second.reason, second.matched, second.end_position)
    assert aborted >= 5
    assert off.scheduler.counters.retractions and on.scheduler.counters.retractions
    assert on.scheduler.counters.discarded_tokens > 0
    assert off.scheduler.counters.discarded_tokens == 0
    for run in (off, on):
        run.scheduler.check_integrity()


def test_overlap_launches_before_it_processes() -> None:
    driver = Driver(disable_overlap_schedule=False)
    driver.submit(prompt(5), 5)
    driver.run()
    assert driver.engine.trace[:6] == ["launch 1", "launch 2", "collect 1", "launch 3", "collect 2", "launch 4"]
    assert driver.engine.plans[1].input_ids.tolist() == [-1]
    assert len(driver.engine.plans) == 5  # the length is known beforehand: no step is wasted on it


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1 << 30), overlap=st.booleans(), failures=st.lists(st.integers(1, 60), max_size=2))
def test_choices_of_a_request_are_what_each_would_be_alone(seed: int, overlap: bool, failures: list[int]) -> None:
    """Several choices per prompt under pressure: each equals a request of its own with the same seed and index."""
    random = Random(seed)
    script = Script("scripted", VOCAB, CONTEXT, (3,), failures=tuple(Failure(launch) for launch in failures))
    driver = Driver(
        script,
        pool=random.choice([150, 400]),
        page=random.choice([1, 4]),
        rows=random.choice([2, 8]),
        chunked_prefill_size=random.choice([-1, 16]),
        disable_overlap_schedule=not overlap,
        disable_radix_cache=random.random() < 0.3,
        init_new_token_ratio=0.05,
    )
    calm = Driver(Script("scripted", VOCAB, CONTEXT, (3,)), pool=4000, check=False)
    for request in range(6):
        tokens = prompt(random.randrange(1, 60), request, VOCAB)
        specs = tuple(ChoiceSpec(100 * request + index, index, seed=random.randrange(9)) for index in range(random.randrange(1, 5)))
        for ours in (driver, calm):
            for group in (specs,) if ours is driver else ((spec,) for spec in specs):
                ours.scheduler.submit(SubmitRequest("r", tokens, group, SamplingSpec(temperature=1.0), StopSpec(max_new_tokens=20)))
        for _ in range(random.randrange(4)):
            driver.turn()
        if random.random() < 0.3:
            driver.scheduler.cancel(specs[0].handle)
    driver.run()
    calm.run()
    for handle, said in calm.said.items():
        tokens_here = driver.tokens(handle)
        whole = driver.final(handle).reason in (FinishReason.STOP, FinishReason.LENGTH)
        assert tokens_here == (said.tokens if whole else said.tokens[: len(tokens_here)])
