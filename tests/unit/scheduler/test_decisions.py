"""What `/server_info?decisions=…` can tell of every turn."""

from __future__ import annotations

from typing import Any

from services.scheduler.core.decisions import DecisionRing
from tests.unit.scheduler.harness import Driver, prompt


def told(driver: Driver, *kinds: str) -> list[dict[str, Any]]:
    return [decision.as_dict() for decision in driver.scheduler.decisions(512) if decision.kind in kinds]


def test_every_step_is_in_the_ring_and_equal_decodes_are_one_entry() -> None:
    """A long prompt beside a running choice: each chunk with the room it had, the decode step it owed, then the decodes as one."""
    driver = Driver(chunked_prefill_size=64)
    driver.submit(prompt(10, 1), 30)
    driver.turn()
    driver.turn()
    driver.submit(prompt(150, 2), 4)
    driver.run()
    steps = [(step["reason"], step.get("prompt_tokens", 0), step["decode_rows"], step.get("steps", 1)) for step in told(driver, "step")]
    assert steps == [
        ("extend", 10, 0, 1),
        ("decode", 0, 1, 1),
        ("extend", 64, 0, 1),
        ("decode", 0, 1, 1),
        ("extend", 64, 0, 1),
        ("decode", 0, 1, 1),
        ("extend", 22, 0, 1),
        ("decode", 0, 2, 3),
        ("decode", 0, 1, 23),
    ]
    assert [step["room"] for step in told(driver, "step") if "room" in step] == [64, 64, 64, 64]
    assert [step["owed"] for step in told(driver, "step") if "owed" in step][:3] == [0, 1, 1]
    assert sum(step[3] for step in steps) == len(driver.engine.plans)


def test_why_somebody_waits_is_said_once_however_many_steps_pass() -> None:
    driver = Driver(max_running_requests=1)
    driver.submit(prompt(10, 1), 30)
    driver.submit(prompt(10, 2), 30)
    for _ in range(20):
        driver.turn()
    (skip,) = told(driver, "skip")
    assert (skip["request_id"], skip["reason"]) == ("r2", "max_running_requests")
    driver.run()


def test_a_ring_keeps_the_newest() -> None:
    ring = DecisionRing(4)
    for number in range(10):
        ring.add(number, "finish", handle=number)
    assert [decision.handle for decision in ring.last(99)] == [6, 7, 8, 9]
    assert [decision.handle for decision in ring.last(2)] == [8, 9]
