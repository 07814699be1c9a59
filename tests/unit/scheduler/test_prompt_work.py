"""What a load report says of the prompts ahead."""

from __future__ import annotations

import pytest

from tests.unit.scheduler.harness import Driver, prompt


def ahead(driver: Driver) -> int:
    return driver.scheduler.load().waiting_prefill_tokens


def test_cached_tokens_of_waiting_prompts_are_no_work() -> None:
    driver = Driver(max_running_requests=1)
    driver.submit(prompt(320), max_new=2)
    driver.run()
    assert ahead(driver) == 0
    driver.submit(prompt(100, first=5), max_new=4)
    driver.turn()
    for _ in range(2):
        driver.submit([*prompt(320), *prompt(40, first=9)], max_new=2)
    assert ahead(driver) == pytest.approx(80, abs=2), "the common 320 tokens are held"
    driver.run()
    assert ahead(driver) == 0


def test_the_rest_of_a_chunked_prompt_and_a_step_that_runs_are_work() -> None:
    driver = Driver(chunked_prefill_size=64, disable_overlap_schedule=False)
    driver.submit(prompt(200), max_new=2)
    seen = []
    for _ in range(5):
        driver.turn()
        seen.append(ahead(driver))
    assert seen == [200, 136, 72, 8, 0], "64 of them in the step that runs, so long as it does"
    driver.run()


def test_those_far_back_are_taken_to_be_like_those_in_front() -> None:
    driver = Driver(max_running_requests=1)
    driver.submit(prompt(320), max_new=2)
    driver.run()
    driver.submit(prompt(100, first=5), max_new=4)
    driver.turn()
    for _ in range(40):
        driver.submit([*prompt(320), *prompt(80, first=9)], max_new=2)
    assert ahead(driver) == pytest.approx(40 * 80, rel=0.05)
    driver.run()
