"""Admission, the forecast's numbers, retraction, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from services.scheduler.core import forecast
from services.scheduler.core.log_lines import RetractLine
from services.scheduler.core.messages import ErrorCode, FinishReason
from services.scheduler.core.new_token_ratio import NewTokenRatio
from services.scheduler.core.plan import ForwardMode
from services.scheduler.engine.script import Playback, Script
from tests.unit.scheduler.harness import NO_EOS, Driver, prompt


def test_ratio_falls_linearly_over_600_steps() -> None:
    ratio = NewTokenRatio(0.7, 1.0, 0.14, 600)
    values = {}
    for step in range(901):
        values[step] = ratio.value
        ratio.decode_step()
    assert [values[step] for step in (0, 300, 600, 900)] == pytest.approx([0.7, 0.399, 0.098, 0.098])
    assert NewTokenRatio(0.7, 1.3, 0.14, 600).value == pytest.approx(0.91)
    assert NewTokenRatio(0.7, 3.0, 0.14, 600).value == 1.0


def test_ratio_after_a_retraction() -> None:
    ratio = NewTokenRatio(0.7, 1.0, 0.14, 600)
    ratio.after_retraction([100, 50], [400, 100])
    assert ratio.value == pytest.approx((150 + 40) / 501)
    ratio.after_retraction([90], [100])
    assert ratio.value == 1.0


def test_running_reservation() -> None:
    """Certain to run to the end: all of the rest; else the rest times the ratio; both clipped at 4096."""
    driver = Driver(Script(vocab_size=50_000, context_length=60_000, eos_token_ids=(1,)), pool=60_000)
    driver.submit(prompt(10, 1), 101)
    driver.submit(prompt(10, 2), 201, ignore_eos=False)
    driver.submit(prompt(10, 3), 9001, ignore_eos=False)
    driver.turn()
    state = driver.scheduler._state
    assert forecast.running_reservation(state) == pytest.approx(100 + 0.7 * 200 + 0.7 * 4096)
    driver.turn()
    ratio = driver.scheduler.load().new_token_ratio
    assert ratio == pytest.approx(0.7 - 0.602 / 600)
    assert forecast.running_reservation(state) == pytest.approx(99 + ratio * 199 + ratio * 4096)


def test_reserved_output_is_clipped_but_the_limit_is_not() -> None:
    driver = Driver(pool=222, clip_max_new_tokens_estimation=64)
    first = driver.submit(prompt(10, 1), 120)
    second = driver.submit(prompt(10, 2), 100)
    driver.turn()
    assert driver.scheduler.load().running == 2  # twice 10 + 64 + 1 fits; 10 + 120 and 10 + 100 would not
    driver.run()
    assert len(driver.tokens(first)) == 120 and len(driver.tokens(second)) == 100


def test_prefill_batches_of_one_and_seven() -> None:
    driver = Driver()
    driver.submit(prompt(50, 0), 20)
    driver.turn()
    for number in range(1, 8):
        driver.submit(prompt(50, number), 20)
    driver.run()
    assert [len(plan.rows) for plan in driver.engine.plans if plan.mode == 1] == [1, 7]


def test_max_prefill_tokens_bounds_a_batch() -> None:
    script = Script(vocab_size=50_000, context_length=8192, eos_token_ids=())
    driver = Driver(script, pool=30_000, chunked_prefill_size=-1, max_prefill_tokens=16384, check=False)
    for number in range(3):
        driver.submit(prompt(7000, number), 2)
    driver.run()
    assert [plan.extend_lens.tolist() for plan in driver.engine.plans if plan.mode == 1] == [[7000, 7000], [7000]]


@pytest.mark.parametrize("config", [{"max_running_requests": 2}, {"prefill_max_requests": 2}])
def test_limits_on_requests(config: dict[str, Any]) -> None:
    driver = Driver(**config)
    for number in range(5):
        driver.submit(prompt(5, number), 10)
    driver.turn()
    assert driver.scheduler.load().running == 2
    reasons = {decision.reason for decision in driver.scheduler.decisions(20) if decision.kind == "skip"}
    assert reasons == set(config)
    driver.run()


OVERFLOW: dict[str, Any] = {"init_new_token_ratio": 0.01, "pool": 260, "rows": 16}


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("page", [1, 4])
def test_retraction_takes_short_outputs_first_and_loses_no_text(overlap: bool, page: int) -> None:
    script = Script(vocab_size=50_000, context_length=512, eos_token_ids=(1,))
    driver = Driver(script, **{**OVERFLOW, "pool": 260 + 4 * page}, page=page, disable_overlap_schedule=not overlap)
    handles = [driver.submit(prompt(20 + number, number), 80, ignore_eos=False) for number in range(8)]
    driver.run()
    retracted = [handle for handle in handles if driver.final(handle).retractions]
    assert retracted
    for number, handle in enumerate(handles):
        alone = Driver(script, pool=1000, page=page)
        single = alone.submit(prompt(20 + number, number), 80, ignore_eos=False)
        alone.run()
        assert driver.tokens(handle) == alone.tokens(single)
        assert driver.final(handle).usage.cached_tokens <= driver.final(handle).usage.prompt_tokens
        assert len(driver.said[handle].started) == 1
    lines = [line for line in driver.lines if isinstance(line, RetractLine)]
    assert lines and all(0 < line.new_ratio <= 1 for line in lines)
    assert "KV cache pool is full. Retract requests." in str(lines[0])
    assert driver.scheduler.load().retracted == sum(line.retracted for line in lines)


def test_victims_fewest_tokens_then_longest_prompt() -> None:
    driver = Driver(**OVERFLOW)
    driver.submit(prompt(10, 1), 200, ignore_eos=False)
    for _ in range(10):
        driver.turn()
    driver.submit(prompt(20, 2), 80, ignore_eos=False)
    long = driver.submit(prompt(30, 3), 80, ignore_eos=False)
    driver.until_retracted()
    victims = [decision.handle for decision in driver.scheduler.decisions(100) if decision.kind == "retract"]
    assert victims == [long]
    driver.run()


def test_no_retraction_while_finishing_requests_return_slots() -> None:
    """Two requests end by length in the step in flight; the third one's next token fits once they are gone."""
    for overlap in (False, True):
        driver = Driver(pool=63, init_new_token_ratio=0.01, disable_overlap_schedule=not overlap)
        for number, budget in enumerate((11, 11, 20)):
            driver.submit(prompt(10, number), budget, token_ids=(49_999,))
        driver.run()
        assert driver.scheduler.counters.retractions == 0


@pytest.mark.parametrize("overlap", [False, True])
def test_the_last_request_ends_with_an_error_instead_of_a_loop(overlap: bool) -> None:
    driver = Driver(pool=64, disable_overlap_schedule=not overlap)
    handle = driver.submit(prompt(10), 200)
    driver.run()
    final = driver.final(handle)
    assert final.reason is FinishReason.ABORT and final.error is not None
    assert final.error.code is ErrorCode.INTERNAL and "Out of memory" in final.error.message
    assert len(driver.tokens(handle)) == final.end_position == 55
    again = driver.submit(prompt(10, 2), 5)
    driver.run()
    assert driver.final(again).reason is FinishReason.LENGTH


def test_priority_retraction_takes_the_lowest_priority() -> None:
    driver = Driver(**OVERFLOW, enable_priority_scheduling=True, retraction_policy="priority", disable_priority_preemption=True)
    low = driver.submit(prompt(10, 1), 200, ignore_eos=False, priority=1)
    driver.turn()
    for number in (2, 3):
        driver.submit(prompt(30, number), 200, ignore_eos=False, priority=5)
    driver.until_retracted()
    assert next(decision.handle for decision in driver.scheduler.decisions(100) if decision.kind == "retract") == low
    driver.run()


@pytest.mark.parametrize(
    ("fields", "code", "field", "words"),
    [
        ({"prompt": []}, ErrorCode.INVALID_REQUEST, "prompt.token_ids", ["empty"]),
        ({"prompt": [50_000]}, ErrorCode.INVALID_REQUEST, "prompt.token_ids", ["50000"]),
        ({"prompt": [-1]}, ErrorCode.INVALID_REQUEST, "prompt.token_ids", []),
        ({"prompt": [1], "prior_output_ids": [-5]}, ErrorCode.INVALID_REQUEST, "choices.prior_output_ids", []),
        ({"prompt": [7] * 1024}, ErrorCode.CONTEXT_LENGTH_EXCEEDED, "prompt.token_ids", ["1024"]),
        ({"prompt": [7] * 1500}, ErrorCode.CONTEXT_LENGTH_EXCEEDED, "prompt.token_ids", ["1500", "1024"]),
        ({"prompt": [7] * 300}, ErrorCode.CONTEXT_LENGTH_EXCEEDED, "prompt.token_ids", ["300", "256"]),
    ],
)
def test_refused_on_arrival(fields: dict[str, Any], code: ErrorCode, field: str, words: list[str]) -> None:
    driver = Driver(NO_EOS, pool=256)
    prior: dict[str, Any] = {"prior_output_ids": np.array(fields["prior_output_ids"], np.int32)} if "prior_output_ids" in fields else {}
    handle = driver.submit(fields["prompt"], 5, **prior)
    driver.turn()
    final = driver.final(handle)
    assert final.reason is FinishReason.ERROR and final.error is not None
    assert (final.error.code, final.error.field) == (code, field)
    assert all(word in final.error.message for word in words)
    assert driver.said[handle].accepted == 0
    assert not driver.scheduler.has_work


def test_full_queue_is_refused() -> None:
    driver = Driver(max_running_requests=1, max_queued_requests=2)
    driver.submit(prompt(5, 0), 10)
    driver.turn()
    handles = [driver.submit(prompt(5, number), 10) for number in range(1, 6)]
    driver.turn()
    refused = [handle for handle in handles if driver.said[handle].final is not None]
    assert refused == handles[2:]
    error = driver.final(refused[0]).error
    assert error is not None and error.code is ErrorCode.OVERLOADED and error.retry_after_ms and error.safe_to_retry
    driver.run()


def test_waits_are_forecast_from_earlier_waits() -> None:
    driver = Driver(max_running_requests=1, max_queued_requests=9)
    for number in range(4):
        driver.submit(prompt(5, number), 10)
    while driver.scheduler.has_work:
        driver.clock_ns += 1_000_000_000
        driver.turn()
    driver.submit(prompt(5, 8), 200)
    driver.turn()
    for number in range(10):
        driver.submit(prompt(5, 20 + number), 10)
    output = driver.scheduler.turn()
    expected = [accepted.expected_wait_ns or 0 for accepted in output.accepted]
    assert expected == sorted(expected) and expected[0] > 0
    assert expected[8] == pytest.approx(9 * expected[0], rel=0.01)
    (refused,) = output.finals
    assert refused.error is not None and 1000 <= (refused.error.retry_after_ms or 0) <= 60_000


def test_full_queue_drops_a_worse_one() -> None:
    driver = Driver(max_running_requests=1, max_queued_requests=2, enable_priority_scheduling=True)
    driver.submit(prompt(5, 0), 10, priority=50)
    driver.turn()
    good = driver.submit(prompt(5, 1), 10, priority=5)
    worst = driver.submit(prompt(5, 2), 10, priority=1)
    better = driver.submit(prompt(5, 3), 10, priority=3)
    equal = driver.submit(prompt(5, 4), 10, priority=3)
    driver.run()
    for handle in (worst, equal):
        error = driver.final(handle).error
        assert error is not None and error.code is ErrorCode.OVERLOADED
    assert driver.final(good).reason is driver.final(better).reason is FinishReason.LENGTH


def test_early_stops_do_not_reserve_what_they_do_not_use() -> None:
    """Budget 3000 each, but all stop after 5 tokens: the ratio lets more than one run."""
    script = Script("scripted", 50_000, 4096, (1,), (Playback((), (5, 6, 7, 8)),))
    driver = Driver(script, pool=6000)
    for number in range(6):
        driver.submit(prompt(100, number), 3000, ignore_eos=False)
    driver.turn()
    driver.turn()
    assert driver.scheduler.load().running >= 2
    driver.run()


def test_what_goes_on_from_earlier_output_is_never_sent_away() -> None:
    """It has waited elsewhere, found the queue full, and meets requests of higher priority: it still runs."""
    driver = Driver(max_running_requests=1, max_queued_requests=1, enable_priority_scheduling=True, req_waiting_timeout_s=1.0)
    driver.clock_ns = 60_000_000_000
    driver.submit(prompt(50), max_new=20, priority=5)
    driver.turn()
    refused = [driver.submit(prompt(50, first=2), priority=5), driver.submit(prompt(50, first=3), priority=5)]
    resumed = driver.submit(
        prompt(50, first=4), max_new=20, priority=1, prior_output_ids=prompt(8, first=9), arrival_ns=driver.clock_ns - 30_000_000_000
    )
    driver.submit(prompt(50, first=5), priority=9)
    driver.turn()
    driver.clock_ns += 5_000_000_000
    driver.run()
    assert driver.final(resumed).error is None
    assert driver.final(resumed).end_position == 20
    assert driver.final(refused[1]).error is not None


def test_time_spent_elsewhere_orders_the_queue_but_is_no_wait_of_this_worker() -> None:
    """What a gateway took to tokenize, or a worker that died to serve, is neither in its queue time nor in its forecasts."""
    driver = Driver(max_running_requests=1)
    driver.clock_ns = 60_000_000_000
    later = driver.submit(prompt(5, 1), 3)
    earlier = driver.submit(prompt(5, 2), 3, arrival_ns=driver.clock_ns - 50_000_000_000)
    driver.run()
    waited = {handle: driver.said[handle].started[0].queue_ns for handle in (later, earlier)}
    assert waited[earlier] == 0 and driver.final(earlier).timings.total_ns == 0
    driver.submit(prompt(5, 3), 3)
    output = driver.scheduler.said()
    assert output.accepted[0].expected_wait_ns in (0, None)
    driver.run()


def test_the_first_of_two_is_who_waited_longer_elsewhere() -> None:
    driver = Driver(max_running_requests=1, check=False)
    driver.clock_ns = 60_000_000_000
    later = driver.submit(prompt(5, 1), 3)
    earlier = driver.submit(prompt(5, 2), 3, arrival_ns=driver.clock_ns - 50_000_000_000)
    driver.turn()
    assert driver.said[earlier].started and not driver.said[later].started
    driver.run()


def test_waiting_choices_are_admitted_together_once_enough_places_are_free() -> None:
    """Eight places, three of them to be free: the first two that end let nobody in, the third lets three in at once."""
    driver = Driver(max_running_requests=8, min_free_slots_delay=3)
    for number in range(8):
        driver.submit(prompt(5, number), 4 + 2 * number)
    for number in range(8, 14):
        driver.submit(prompt(5, number), 200)
    for _ in range(9):
        driver.turn()
    sizes = [plan.rows.size for plan in driver.engine.plans if plan.mode is ForwardMode.EXTEND]
    assert sizes == [8, 3]
    assert any(decision.reason == "min_free_slots_delay" for decision in driver.scheduler.decisions(100))
    driver.run()


def test_a_delay_holds_nobody_up_while_nothing_runs() -> None:
    driver = Driver(max_running_requests=4, min_free_slots_delay=100)
    handles = [driver.submit(prompt(5, number), 6) for number in range(9)]
    driver.run()
    sizes = [plan.rows.size for plan in driver.engine.plans if plan.mode is ForwardMode.EXTEND]
    assert sizes == [4, 4, 1] and all(len(driver.tokens(handle)) == 6 for handle in handles)


def test_a_delay_does_not_go_with_preemption() -> None:
    with pytest.raises(ValueError, match="min_free_slots_delay"):
        Driver(min_free_slots_delay=2, enable_priority_scheduling=True)
    Driver(min_free_slots_delay=2, enable_priority_scheduling=True, disable_priority_preemption=True)
