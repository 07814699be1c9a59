"""Whole turns over the scripted engine: numbers the rows promise."""

from __future__ import annotations

import pytest

from services.scheduler.core.messages import FinishReason
from services.scheduler.core.plan import ForwardMode
from services.scheduler.engine.script import Script
from tests.unit.scheduler.harness import NO_EOS, Driver, prompt


@pytest.mark.parametrize(("overlap", "scale"), [(False, 1), (False, 8), (True, 8)])
def test_five_of_sixteen_run_at_a_time(overlap: bool, scale: int) -> None:
    """256 + 512 tokens and one page for each: five need 3845 of 4096, a sixth would need 4614."""
    driver = Driver(pool=4096 // scale, disable_overlap_schedule=not overlap, check=False)
    handles = [driver.submit(prompt(256 // scale, number), 512 // scale) for number in range(16)]
    most = 0
    while driver.scheduler.has_work:
        driver.turn()
        most = max(most, driver.scheduler.load().running)
    driver.run()
    driver.scheduler.check_integrity()
    assert most == 5
    assert all(len(driver.tokens(handle)) == 512 // scale for handle in handles)
    assert driver.scheduler.counters.retractions == 0
    assert all(driver.final(handle).reason is FinishReason.LENGTH for handle in handles)


def test_repeated_prompt_is_cached_but_for_its_last_token() -> None:
    driver = Driver(Script(vocab_size=50_000, context_length=4096, eos_token_ids=()), pool=8192, chunked_prefill_size=2048)
    first = driver.submit(prompt(2999), 4)
    driver.run()
    again = driver.submit(prompt(2999), 4)
    driver.run()
    assert driver.said[again].started[0].cached_tokens == 2998
    assert driver.engine.plans[-4].extend_lens.tolist() == [1]
    assert driver.tokens(first) == driver.tokens(again)


@pytest.mark.parametrize("overlap", [False, True])
def test_three_staggered_requests(overlap: bool) -> None:
    driver = Driver(disable_overlap_schedule=not overlap)
    driver.submit(prompt(5, 1), 5)
    driver.turn()
    driver.submit(prompt(6, 2), 3)
    driver.turn()
    driver.turn()
    driver.submit(prompt(7, 3), 2)
    driver.run()
    modes = [(ForwardMode(plan.mode).name, plan.extend_lens.tolist()) for plan in driver.engine.plans]
    assert modes == [
        ("EXTEND", [5]),
        ("EXTEND", [6]),
        ("DECODE", [1, 1]),
        ("EXTEND", [7]),
        ("DECODE", [1, 1, 1]),
        ("DECODE", [1]),
        ("DECODE", [1]),
    ]


def test_chunks_are_equal_to_one_prefill_and_let_decodes_advance() -> None:
    whole = Driver(NO_EOS, chunked_prefill_size=-1)
    handle = whole.submit(prompt(1000), 8)
    whole.run()
    chunked = Driver(NO_EOS, chunked_prefill_size=256)
    other = chunked.submit(prompt(10, 5), 20)
    chunked.turn()
    long = chunked.submit(prompt(1000), 8)
    chunked.run()
    assert chunked.tokens(long) == whole.tokens(handle)
    lengths = [plan.extend_lens.tolist() for plan in chunked.engine.plans if plan.mode is ForwardMode.EXTEND]
    assert lengths == [[10], [256], [256], [256], [232]]
    modes = "".join(ForwardMode(plan.mode).name[0] for plan in chunked.engine.plans[:9])
    assert modes == "EEDEDEDED"
    assert len(chunked.tokens(other)) == 20


@pytest.mark.parametrize("overlap", [False, True])
def test_everybody_leaves_at_the_own_step_and_places_are_taken_at_once(overlap: bool) -> None:
    """Eight of 3 to 10 tokens: one prefill and nine decode steps, not 44. Eight more take the places as they become free."""
    driver = Driver(max_running_requests=8, disable_overlap_schedule=not overlap)
    first = [driver.submit(prompt(5, number), 3 + number) for number in range(8)]
    alone = Driver()
    for number in range(8):
        alone.submit(prompt(5, number), 3 + number)
    alone.run()
    assert [plan.mode.name[0] for plan in alone.engine.plans] == ["E", *"DDDDDDDDD"]
    second = [driver.submit(prompt(5, 10 + number), 4) for number in range(8)]
    ended: list[int] = []
    steps: dict[int, int] = {}
    while driver.scheduler.has_work:
        driver.turn()
        new = [handle for handle in (*first, *second) if driver.said[handle].final and handle not in ended]
        ended += new
        steps.update(dict.fromkeys(new, len(driver.engine.plans)))
    assert ended[:3] == first[:3] and [steps[handle] for handle in first] == sorted(steps[handle] for handle in first)
    decodes = [plan for plan in driver.engine.plans if plan.mode is ForwardMode.DECODE]
    assert len(decodes) <= 9 + 4  # the longest of the first and what the last of the second still needs
    assert all(len(driver.tokens(handle)) == 3 + number for number, handle in enumerate(first))


@pytest.mark.parametrize("mixed", [False, True])
def test_a_mixed_step_leaves_no_gap_between_decode_tokens(mixed: bool) -> None:
    """Four decode while 300 tokens of another prompt are computed: with mixed chunks each step gives each of them a token."""
    driver = Driver(chunked_prefill_size=64, enable_mixed_chunk=mixed)
    four = [driver.submit(prompt(10, number), 40) for number in range(4)]
    driver.turn()
    driver.submit(prompt(300, 9), 5)
    begun, gaps, last = len(driver.engine.plans), [], len(driver.tokens(four[0]))
    for _ in range(10):
        driver.turn()
        if len(driver.tokens(four[0])) > last:
            gaps.append(len(driver.engine.plans) - begun)
            begun, last = len(driver.engine.plans), len(driver.tokens(four[0]))
    assert max(gaps) == (1 if mixed else 2)
    driver.run()
    calm = Driver()
    handles = [*(calm.submit(prompt(10, number), 40) for number in range(4)), calm.submit(prompt(300, 9), 5)]
    calm.run()
    assert [driver.tokens(handle) for handle in handles] == [calm.tokens(handle) for handle in handles]
