"""Device memory that runs out, outputs that are no tokens, and what is told about it."""

from __future__ import annotations

import pytest

from services.scheduler.core.messages import ErrorCode, FinishReason
from services.scheduler.engine.script import Failure, Playback, Script, load_script, parse_script
from tests.unit.scheduler.harness import NO_EOS, Driver, prompt


@pytest.mark.parametrize("overlap", [False, True])
def test_prefills_shrink_until_they_fit(overlap: bool) -> None:
    script = Script("scripted", 50_000, 1024, (), oom_above_tokens=100)
    driver = Driver(script, chunked_prefill_size=-1, disable_overlap_schedule=not overlap)
    handles = [driver.submit(prompt(350, number), 5) for number in range(3)]
    driver.run()
    calm = Driver(NO_EOS)
    for number, handle in enumerate(handles):
        single = calm.submit(prompt(350, number), 5)
        calm.run()
        assert driver.tokens(handle) == calm.tokens(single)
    assert driver.scheduler.counters.out_of_memory >= 3
    assert driver.scheduler.limits.chunked_prefill_size <= 100
    assert any("Out of device memory" in str(line) for line in driver.lines)
    assert max(plan.input_ids.size for plan in driver.engine.plans) <= 100


def test_decodes_shrink_until_they_fit() -> None:
    script = Script("scripted", 50_000, 1024, (), oom_above_tokens=20)
    driver = Driver(script, chunked_prefill_size=16)
    handles = [driver.submit(prompt(10, number), 60) for number in range(40)]
    driver.run()
    assert all(driver.final(handle).reason is FinishReason.LENGTH for handle in handles)
    assert max(plan.rows.size for plan in driver.engine.plans) <= 20
    assert driver.scheduler.limits.max_running_requests < 40


def test_a_step_that_cannot_shrink_ends_its_request() -> None:
    script = Script("scripted", 50_000, 1024, (), oom_above_tokens=0)
    driver = Driver(script)
    handle = driver.submit(prompt(100), 8)
    driver.run()
    error = driver.final(handle).error
    assert error is not None and error.code is ErrorCode.INTERNAL and "memory" in error.message


def test_a_prompt_that_gave_no_finite_output_is_computed_anew_the_next_time() -> None:
    """The first chunks were cached before the last one showed that something is wrong. What others share of them stays."""
    bad, common = prompt(400, 1), prompt(100, 1)
    script = Script("scripted", 50_000, 1024, (), (Playback(tuple(bad.tolist()), (5, 6), invalid_at=0),))
    driver = Driver(script, chunked_prefill_size=64)
    neighbour = driver.submit([*common.tolist(), 9], 300)
    for _ in range(3):
        driver.turn()
    for _ in range(2):
        handle = driver.submit(bad, 4)
        while driver.said[handle].final is None:
            driver.turn()
        assert driver.final(handle).reason is FinishReason.ERROR
        assert driver.said[handle].started[0].cached_tokens == 100
    driver.run()
    assert len(driver.tokens(neighbour)) == 300
    assert driver.scheduler.load().kv_evictable_tokens == 101 + 299


@pytest.mark.parametrize("overlap", [False, True])
def test_outputs_that_are_not_finite_end_one_request(overlap: bool) -> None:
    bad = prompt(10, 1)
    script = Script("scripted", 50_000, 1024, (), (Playback(tuple(bad.tolist()), (5, 6, 7, 8), invalid_at=2),))
    driver = Driver(script, disable_overlap_schedule=not overlap)
    ill, well = driver.submit(bad, 10), driver.submit(prompt(10, 2), 10)
    driver.run()
    final = driver.final(ill)
    assert final.reason is FinishReason.ERROR and final.error is not None and final.error.code is ErrorCode.INTERNAL
    assert driver.tokens(ill) == [5, 6]
    assert driver.final(well).reason is FinishReason.LENGTH
    assert driver.scheduler.counters.invalid_outputs == 1


def test_a_crash_of_the_engine_is_not_swallowed() -> None:
    driver = Driver(Script("scripted", 50_000, 1024, (), failures=(Failure(2, "crash"),)))
    driver.submit(prompt(10), 10)
    driver.turn()
    with pytest.raises(RuntimeError, match="scripted to crash"):
        driver.turn()


def test_scripts_are_checked() -> None:
    script = parse_script({"vocab_size": 50, "eos_token_ids": [2], "playbacks": [{"output": [3, 4], "repeat": True}]})
    assert script.playbacks[0].output == (3, 4)
    assert load_script(None) == Script()
    for raw, words in (
        ({"vocab": 3}, "unknown key 'vocab'"),
        ({"playbacks": [{"outputs": []}]}, "unknown key 'outputs'"),
        ({"vocab_size": 10, "playbacks": [{"output": [10]}]}, "10 is not a token id below 10"),
        ({"failures": [{"launch": 1, "kind": "flood"}]}, "unknown kind 'flood'"),
        ([], "must be an object"),
    ):
        with pytest.raises(ValueError, match=words):
            parse_script(raw)


def test_log_lines_add_up() -> None:
    driver = Driver(decode_log_interval=10, check=False)
    for number in range(4):
        driver.submit(prompt(100, number % 2), 45)
        driver.turn()
    driver.run()
    texts = [str(line) for line in driver.lines]
    prefills = [text for text in texts if text.startswith("Prefill batch, ")]
    numbers = [dict(part.split(": ") for part in text[len("Prefill batch, ") :].split(", ")) for text in prefills]
    assert sum(int(line["#new-token"]) + int(line["#cached-token"]) for line in numbers) == 400
    decodes = [text for text in texts if text.startswith("Decode batch, ")]
    assert len(decodes) == driver.scheduler.counters.decode_steps // 10
    assert list(numbers[0]) == [
        "#new-seq",
        "#new-token",
        "#cached-token",
        "token usage",
        "#running-req",
        "#queue-req",
        "#pending-token",
        "cuda graph",
        "input throughput (token/s)",
    ]


def test_decode_steps_in_a_row() -> None:
    """A prompt that arrives after the first of three decode steps is looked at after the third."""
    driver = Driver(num_continuous_decode_steps=3)
    driver.submit(prompt(5, 0), 100)
    for number in range(1, 9):
        driver.turn()
        if number == 2:
            driver.submit(prompt(5, number), 100)
    assert "".join(plan.mode.name[0] for plan in driver.engine.plans) == "EDDDEDDD"


def test_prefill_interval_and_mixed_chunks() -> None:
    driver = Driver(prefill_decode_interval=4)
    driver.submit(prompt(5, 0), 100)
    for number in range(1, 20):
        driver.submit(prompt(5, number), 100)
        driver.turn()
    modes = "".join(plan.mode.name[0] for plan in driver.engine.plans)
    assert modes.startswith("EDDDDEDDDDE")
    mixed = Driver(enable_mixed_chunk=True, chunked_prefill_size=64)
    for number in range(4):
        mixed.submit(prompt(5, number), 60)
    mixed.turn()
    mixed.submit(prompt(300, 9), 4)
    for _ in range(4):
        mixed.turn()
    shapes = [(plan.mode.name, plan.extend_lens.tolist()) for plan in mixed.engine.plans[1:]]
    assert shapes == [("MIXED", [60, 1, 1, 1, 1])] * 4
