"""How long prefills may keep running requests waiting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.simulated_device import Device
from services.scheduler.core.chunk_pace import ChunkPace
from services.scheduler.core.plan import ForwardMode
from tests.unit.scheduler.harness import Driver, prompt
from tests.unit.scheduler.simulated_device import closed_loop


def measured(driver: Driver, decode_step_ms: float) -> None:
    """A device that prefills 1000 tokens a second."""
    driver.scheduler._state.pace.token_ms = 1.0
    driver.scheduler._state.pace.decode_ms = decode_step_ms


def shapes(driver: Driver) -> list[list[int]]:
    return [plan.extend_lens.tolist() for plan in driver.engine.plans]


def test_chunks_fill_what_a_decode_step_leaves_of_the_gap() -> None:
    """A gap of 50 ms with a decode step of 10 ms takes 40 tokens; a decode step of 80 ms may become half as long again."""
    driver = Driver(chunked_prefill_size=256, itl_target_ms=50.0)
    driver.submit(prompt(10, 0), 200)
    driver.turn()
    driver.submit(prompt(600, 1), 4)
    driver.turn()  # a decode step lies between any two prefills
    for decode_step_ms in (10.0, 80.0, 2.0):
        measured(driver, decode_step_ms)
        driver.turn()
        driver.turn()
    assert shapes(driver) == [[10], [1], [40], [1], [40], [1], [48], [1]]


def test_mixed_chunks_fill_the_gap() -> None:
    """Beside the decode tokens of the same step."""
    driver = Driver(chunked_prefill_size=256, itl_target_ms=50.0, enable_mixed_chunk=True)
    driver.submit(prompt(10, 0), 200)
    driver.turn()
    driver.submit(prompt(600, 1), 4)
    for decode_step_ms in (10.0, 80.0):
        measured(driver, decode_step_ms)
        driver.turn()
    assert shapes(driver) == [[10], [40, 1], [40, 1]]


def test_a_prompt_that_stalls_nobody_is_computed_at_once() -> None:
    """Up to the configured size; as soon as somebody decodes, chunks fit into the gap."""
    driver = Driver(chunked_prefill_size=512, itl_target_ms=50.0)
    driver.submit(prompt(600, 1), 9)
    driver.submit(prompt(600, 2), 9)
    for _ in range(4):
        driver.turn()
        measured(driver, 10.0)
    assert shapes(driver) == [[512], [88, 424], [1], [40]]


def test_chunks_are_short_until_the_device_has_shown_its_speed() -> None:
    driver = Driver(chunked_prefill_size=512, itl_target_ms=50.0)
    driver.submit(prompt(10, 0), 200)
    driver.turn()
    driver.scheduler._state.pace.token_ms = 0.0
    driver.submit(prompt(600, 1), 4)
    driver.turn()
    driver.turn()
    assert shapes(driver) == [[10], [1], [64]]


def test_many_short_prompts_stall_decodes_no_longer_than_a_long_one() -> None:
    driver = Driver(chunked_prefill_size=512, itl_target_ms=50.0)
    driver.submit(prompt(10, 0), 200)
    driver.turn()
    for number in range(1, 9):
        driver.submit(prompt(20, number), 200)
    for _ in range(9):
        measured(driver, 10.0)
        driver.turn()
    prefills = [sum(plan.extend_lens) for plan in driver.engine.plans[1:] if plan.mode is ForwardMode.EXTEND]
    assert prefills == [40] * 4
    assert shapes(driver)[-1] == [1] * 9


def run_to_rest(pace: ChunkPace, decode_ms: float, token_ms: float, target_ms: float) -> list[float]:
    """Lengths of mixed steps, each as large as the pace says, on a device with these costs."""
    lengths = []
    for _ in range(20):
        room = max(target_ms, 1.5 * pace.decode_ms) - pace.decode_ms
        tokens = max(int(room / pace.token_ms), 16)
        lengths.append(decode_ms + tokens * token_ms)
        pace.observe(tokens, 8, lengths[-1], target_ms)
    return lengths


@pytest.mark.parametrize("token_ms", [10.0, 1.0, 0.35])
@pytest.mark.parametrize("decode_ms", [5.0, 50.0, 100.0])
def test_step_lengths_come_to_the_target_from_above_and_below(token_ms: float, decode_ms: float) -> None:
    """Whatever was believed before, and whichever of the two costs was mistaken."""
    pace = ChunkPace()
    pace.token_ms, pace.decode_ms = token_ms, decode_ms
    assert run_to_rest(pace, decode_ms=50.0, token_ms=0.7, target_ms=150.0)[-1] == pytest.approx(150.0, rel=0.05)


def test_a_device_that_became_slow_still_computes_prompts_beside_decodes() -> None:
    """Eight times slower, so that decode tokens alone take longer than the target: prompts may add half of that."""
    pace = ChunkPace()
    pace.observe(0, 8, 40.0, 150.0)
    pace.observe(512, 0, 350.0, 150.0)
    lengths = run_to_rest(pace, decode_ms=320.0, token_ms=5.5, target_ms=150.0)
    assert lengths[-1] == pytest.approx(480.0, rel=0.05)


def test_one_step_is_not_believed_far() -> None:
    """A worker that was stopped for a minute does not think its device a thousand times slower."""
    pace = ChunkPace()
    pace.token_ms, pace.decode_ms = 0.7, 50.0
    pace.observe(140, 8, 60_000.0, 150.0)
    assert pace.token_ms < 2.0 and pace.decode_ms < 150.0


def test_a_short_prompt_says_nothing_against_the_pace() -> None:
    pace = ChunkPace()
    pace.observe(2000, 0, 1000.0, target_ms=150.0)
    pace.observe(5, 0, 20.0, target_ms=150.0)
    assert pace.token_ms == 0.5
    pace.observe(300, 0, 300.0, target_ms=150.0)
    assert pace.token_ms == 0.75


ADAPTIVE: dict[str, Any] = {"itl_target_ms": 150.0, "chunked_prefill_size": 2048}


@pytest.mark.parametrize("mixed", [False, True])
def test_adaptive_chunks_hold_the_gap_for_little_throughput(mixed: bool) -> None:
    """32 users, 512 tokens in and 128 out: the best fixed chunk stalls everybody for seconds and gives hardly more."""
    fixed = {size: closed_loop(32, 64, 512, 128, chunked_prefill_size=size) for size in (256, 2048)}
    best = max(fixed.values(), key=lambda outcome: outcome.tokens_per_s)
    adaptive = closed_loop(32, 64, 512, 128, enable_mixed_chunk=mixed, **ADAPTIVE)
    assert adaptive.tokens_per_s > 0.95 * best.tokens_per_s
    assert np.percentile(adaptive.gaps, 99) < 165
    assert max(adaptive.gaps) < 180
    assert np.percentile(fixed[256].gaps, 99) > 300
    assert max(best.gaps) > 5000


def test_a_long_prompt_on_an_idle_server_is_as_fast_as_in_one_piece() -> None:
    whole = closed_loop(1, 2, 6000, 8, chunked_prefill_size=-1)
    adaptive = closed_loop(1, 2, 6000, 8, **ADAPTIVE)
    assert adaptive.first_tokens == pytest.approx(whole.first_tokens, rel=0.001)


def test_a_device_whose_decode_steps_miss_the_target_still_computes_prompts() -> None:
    """Decode steps of 300 ms: prompts add half of one, so that the queue moves."""
    slow = Device(prefill_ms_per_token=5.0, decode_ms=300.0, decode_ms_per_row=0.0)
    found = closed_loop(8, 16, 100, 20, slow, **ADAPTIVE)
    assert max(found.gaps) < 500
    assert found.output_tokens == 320


def test_on_a_slow_device_least_chunks_keep_the_throughput() -> None:
    """Four times slower, the weights alone take 20 ms a step: holding the target would keep nearly all waiting."""
    slow = Device(prefill_ms_per_token=2.6, decode_ms=20.0, decode_ms_per_row=5.6)
    best = closed_loop(16, 32, 512, 64, slow, chunked_prefill_size=2048)
    found = closed_loop(16, 32, 512, 64, slow, enable_mixed_chunk=True, least_chunk=128, **ADAPTIVE)
    assert found.tokens_per_s > 0.95 * best.tokens_per_s
    assert max(found.gaps) < 1.05 * (20.0 + 16 * 5.6 + 128 * 2.6)
    held = closed_loop(16, 32, 512, 64, slow, enable_mixed_chunk=True, **ADAPTIVE)
    assert np.percentile(held.gaps, 99) < 180
